"""Experiments on disk: trials, facts, journal, state, resume, ownership."""

from __future__ import annotations

import importlib
from typing import Any

_EXPORTS = {"Experiment": "tuner.experiment.definition", "Trial": "tuner.experiment.trial"}
__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
