"""Which executor runs the trials of one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tuner.error import SettingError
from tuner.executors.base import Executor

_TRAITS = (
    "inline", "max_concurrent", "clock", "directories", "virtual_checkpoints", "keeps_processes", "remote_hosts"
)  # fmt: skip
_default: Callable[[], Executor] | None = None
takes_undeclared = False
"""On one machine trials may ask for resources that nobody has declared; `tuner.compat` says so."""


def take_undeclared() -> None:
    """Let trials of one machine ask for custom resources that nobody has declared, from now on in this process."""
    global takes_undeclared
    takes_undeclared = True


def use(make: Callable[[], Executor] | None) -> None:
    """What makes the executor of every run from now on for which none is given; None: processes of this machine."""
    global _default
    _default = make


def chosen(setting: Any) -> Executor:
    """The executor that `executor=` means. Raises SettingError."""
    if setting is None and _default is not None:
        return _default()
    if setting in (None, "local"):
        from tuner.executors.local.executor import LocalExecutor

        return LocalExecutor()
    if setting == "inline":
        from tuner.executors.inline import InlineExecutor

        return InlineExecutor()
    if setting == "ray":
        from tuner.executors.ray.executor import RayExecutor

        return RayExecutor()
    if setting == "slurm":
        from tuner.executors.slurm.executor import SlurmExecutor

        return SlurmExecutor()
    if isinstance(setting, (str, type)) or not hasattr(setting, "run_once"):
        accepted = "'local', 'inline', 'ray', 'slurm' and an Executor"
        raise SettingError(f"executor={setting!r} is not accepted; accepted are {accepted}")
    for trait in _TRAITS:  # one that has the methods need not derive from Executor
        if not hasattr(setting, trait):
            setattr(setting, trait, None if trait == "remote_hosts" else getattr(Executor, trait))
    made: Executor = setting
    return made
