"""Environment variables of Ray's: what they do here, and a line for each that does nothing (variables.toml)."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from pathlib import Path

from tuner import knobs

log = logging.getLogger(__name__)

PREFIXES = ("TUNE_", "TRAIN_", "RAY_")


@functools.cache
def _table() -> Mapping[str, Mapping[str, str]]:
    import tomllib

    return tomllib.loads(Path(__file__).with_name("variables.toml").read_text("utf-8"))


def honoured() -> Mapping[str, str]:
    """Variable -> what it does here."""
    return _table()["honoured"]


def without_effect() -> Mapping[str, str]:
    """Variable -> why it does nothing, and what to use."""
    return _table()["nothing"]


def tell_of_vain() -> None:
    """Log a line for each variable of Ray's that is set and does nothing here."""
    for name in knobs.variables_of(PREFIXES):
        if name in without_effect():
            log.warning("%s is set and has no effect: %s", name, without_effect()[name])
