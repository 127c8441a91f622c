"""Callbacks that the environment names."""

from __future__ import annotations

import importlib

from tuner import knobs
from tuner.callback import Callback
from tuner.error import SettingError


def named_callbacks() -> list[Callback]:
    """Callbacks of the classes that RAY_TUNE_CALLBACKS names. Raises SettingError for what is no such class."""
    made = []
    for path in knobs.callback_classes():
        module, _, name = path.rpartition(".")
        try:
            kind = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise SettingError(f"RAY_TUNE_CALLBACKS: {path!r} cannot be imported: {error}") from error
        if not (isinstance(kind, type) and issubclass(kind, Callback)):
            raise SettingError(f"RAY_TUNE_CALLBACKS: {path!r} is not accepted; accepted are subclasses of Callback")
        made.append(kind())
    return made
