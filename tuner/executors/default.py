"""Which executor runs the trials where nobody says one."""

from __future__ import annotations

from collections.abc import Callable

from tuner.executors.base import Executor

_chosen: Callable[[], Executor] | None = None


def use(make: Callable[[], Executor] | None) -> None:
    """What makes the executor of every run from now on; None: processes of this machine."""
    global _chosen
    _chosen = make


def make() -> Executor:
    """The executor of one run."""
    if _chosen is not None:
        return _chosen()
    from tuner.executors.local import LocalExecutor

    return LocalExecutor()
