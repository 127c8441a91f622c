"""Warnings about what a user wrote, as Python gives them, and remembered until a run can write them down.

A setting is made before the run that it is for: what is warned of then belongs into that run's driver.log too.
"""

from __future__ import annotations

import logging
import warnings
from collections import deque

KEPT = 100
"""So many are remembered."""

_said: deque[logging.LogRecord] = deque(maxlen=KEPT)


def warn(message: str, *, stacklevel: int = 1) -> None:
    """`warnings.warn` for a user's mistake; `stacklevel` counts as there, from the caller on."""
    warnings.warn(message, UserWarning, stacklevel=stacklevel + 1)
    # After it: what a filter makes an error has not been passed over.
    _said.append(logging.makeLogRecord({"msg": message, "levelno": logging.WARNING, "levelname": "WARNING"}))


def take() -> list[logging.LogRecord]:
    """What was warned of since the last call, as if it had been logged: a record knows its time."""
    taken = []
    while _said:
        taken.append(_said.popleft())
    return taken
