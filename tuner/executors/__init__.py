"""Executors run trials: local processes, this very process, the nodes of a Ray cluster, jobs of Slurm, or a simulation.

Third parties write their own against `tuner.executors.base`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.executors.base import Executor, Exited, Launch, Message, Started
    from tuner.executors.inline import InlineExecutor
    from tuner.executors.local.executor import LocalExecutor
    from tuner.executors.pool import check_fits
    from tuner.executors.ray.executor import RayExecutor
    from tuner.executors.simulated import SimulatedExecutor
    from tuner.executors.simulated_attempt import SimulatedSave
    from tuner.executors.slurm.executor import SlurmExecutor
    from tuner.resources import parse_resources

__all__ = [
    "Executor",
    "Exited",
    "InlineExecutor",
    "Launch",
    "LocalExecutor",
    "Message",
    "RayExecutor",
    "SimulatedExecutor",
    "SimulatedSave",
    "SlurmExecutor",
    "Started",
    "check_fits",
    "parse_resources",
]

_WHERE = {
    "InlineExecutor": "tuner.executors.inline",
    "LocalExecutor": "tuner.executors.local.executor",
    "RayExecutor": "tuner.executors.ray.executor",
    "SimulatedExecutor": "tuner.executors.simulated",
    "SimulatedSave": "tuner.executors.simulated_attempt",
    "SlurmExecutor": "tuner.executors.slurm.executor",
    "check_fits": "tuner.executors.pool",
    "parse_resources": "tuner.resources",
}


def __getattr__(name: str) -> Any:
    # the fork server imports this package and needs none of them
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE.get(name, "tuner.executors.base")), name)
