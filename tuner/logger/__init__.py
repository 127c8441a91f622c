"""Loggers: callbacks that write what trials report into their directories."""

from __future__ import annotations

from collections.abc import Sequence

from tuner import knobs
from tuner.callback import Callback
from tuner.logger.base import LoggerCallback
from tuner.logger.csv import CSVLoggerCallback
from tuner.logger.error_file import ErrorFileCallback
from tuner.logger.json import JsonLoggerCallback
from tuner.logger.tensorboard import TBXLoggerCallback

__all__ = [
    "CSVLoggerCallback",
    "ErrorFileCallback",
    "JsonLoggerCallback",
    "LoggerCallback",
    "TBXLoggerCallback",
    "default_loggers",
]


def default_loggers(given: Sequence[Callback]) -> list[Callback]:
    """The loggers that every run has, less those that the user gave.

    TUNE_DISABLE_AUTO_CALLBACK_LOGGERS=1 leaves only `error.txt`, TUNE_DISABLE_TENSORBOARD=1 all but TensorBoard's.
    """
    kinds: list[type[Callback]] = [ErrorFileCallback]
    if not knobs.disable_loggers():
        kinds += [JsonLoggerCallback, CSVLoggerCallback]
        if not knobs.disable_tensorboard():
            kinds.append(TBXLoggerCallback)
    return [kind() for kind in kinds if not any(isinstance(callback, kind) for callback in given)]
