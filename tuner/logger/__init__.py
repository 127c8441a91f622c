"""Loggers: callbacks that write what trials report into their directories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuner import knobs
from tuner.callback import Callback
from tuner.logger.base import LoggerCallback
from tuner.logger.csv import CSVLoggerCallback
from tuner.logger.error_file import ErrorFileCallback
from tuner.logger.json import JsonLoggerCallback
from tuner.logger.legacy import (
    DEFAULT_LOGGERS,
    CSVLogger,
    JsonLogger,
    LegacyLoggerCallback,
    Logger,
    NoopLogger,
    TBXLogger,
    UnifiedLogger,
)
from tuner.logger.tensorboard import TBXLoggerCallback

__all__ = [
    "DEFAULT_LOGGERS",
    "CSVLogger",
    "CSVLoggerCallback",
    "ErrorFileCallback",
    "JsonLogger",
    "JsonLoggerCallback",
    "LegacyLoggerCallback",
    "Logger",
    "LoggerCallback",
    "NoopLogger",
    "TBXLogger",
    "TBXLoggerCallback",
    "UnifiedLogger",
    "default_loggers",
    "pretty_print",
]


def pretty_print(result: Mapping[str, Any], exclude: Sequence[str] | None = None) -> str:
    """A result as text for people, a key to a line; without its config, what is None, and what is excluded.

    >>> print(pretty_print({"loss": 0.5, "eval": {"auc": 0.9}, "config": {"lr": 1}, "note": None}))
    eval:
      auc: 0.9
    loss: 0.5
    <BLANKLINE>
    """
    import yaml

    from trainables.plain_metrics import plain_metrics

    left_out = {"config", "hist_stats", *(exclude or ())}
    shown = {key: value for key, value in result.items() if value is not None and key not in left_out}
    return str(yaml.safe_dump(plain_metrics(shown), default_flow_style=False))


def default_loggers(given: Sequence[Callback]) -> list[Callback]:
    """The loggers that every run has, less those that the user gave.

    TUNE_DISABLE_AUTO_CALLBACK_LOGGERS=1 leaves only `error.txt`, and `result.json` where a tracker reads it;
    TUNE_DISABLE_TENSORBOARD=1 all but TensorBoard's.
    """
    kinds: list[type[Callback]] = [ErrorFileCallback]
    if knobs.disable_loggers():
        kinds += [JsonLoggerCallback] * any(getattr(callback, "reads_result_json", False) for callback in given)
    else:
        kinds += [JsonLoggerCallback, CSVLoggerCallback]
        if not knobs.disable_tensorboard():
            kinds.append(TBXLoggerCallback)
    asked = (callback.writers for callback in given if isinstance(callback, LegacyLoggerCallback))
    kinds += sorted(set().union(*asked) - set(kinds), key=lambda kind: kind.__name__)
    return [kind() for kind in kinds if not any(isinstance(callback, kind) for callback in given)]
