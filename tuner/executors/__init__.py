"""Executors run trials: local processes, this very process, or a simulation on virtual time.

Third parties write their own against `tuner.executors.base`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.executors.base import Executor, Exited, Launch, Message, Started
    from tuner.executors.inline import InlineExecutor
    from tuner.executors.local import LocalExecutor
    from tuner.executors.resources import check_fits, parse_resources
    from tuner.executors.simulated import SimulatedExecutor

__all__ = [
    "Executor",
    "Exited",
    "InlineExecutor",
    "Launch",
    "LocalExecutor",
    "Message",
    "SimulatedExecutor",
    "Started",
    "check_fits",
    "parse_resources",
]

_WHERE = {
    "InlineExecutor": "inline",
    "LocalExecutor": "local",
    "SimulatedExecutor": "simulated",
    "check_fits": "resources",
    "parse_resources": "resources",
}


def __getattr__(name: str) -> Any:
    # the fork server imports this package and needs none of them
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE.get(name, 'base')}"), name)
