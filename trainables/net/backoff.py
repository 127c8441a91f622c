"""Waiting for a store that asks everybody to come back later (503, 429): longer each time, and not for ever."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from trainables.errors import StoreBusyError

log = logging.getLogger(__name__)

T = TypeVar("T")

_FIRST_S, _LONGEST_S = 1.0, 60.0


def patient(call: Callable[[], T], limit_s: float) -> T:
    """What `call` returns, tried again after 1, 2, 4 ... 60 s while the store is overloaded, for `limit_s` seconds.

    Ctrl-C ends the wait. Raises what `call` raises, StoreBusyError at last.
    """
    begun, pause = time.monotonic(), _FIRST_S
    while True:
        try:
            return call()
        except StoreBusyError as error:
            left = begun + limit_s - time.monotonic()
            if left <= 0:
                raise
            log.warning(
                "waiting for the store, tried again in %.0f s, for %.0f s more (sync_timeout; Ctrl-C ends it): %s",
                min(pause, left),
                left,
                error,
            )
            time.sleep(min(pause, left))  # of a driver that has not begun: nothing else wants to be done
            pause = min(2 * pause, _LONGEST_S)
