"""Trials on the nodes of a Ray cluster.

    driver (RayExecutor) ── agent of node A (an actor) ── LocalExecutor ── fork server, keepers, trials
                         └─ agent of node B ...

Ray places, starts the agents, carries messages and notices deaths. On each node the very same local executor runs the
trials, and the node's own disk keeps their checkpoints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.executors.ray.executor import RayExecutor

__all__ = ["RayExecutor"]


def __getattr__(name: str) -> Any:
    if name != "RayExecutor":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tuner.executors.ray.executor import RayExecutor

    return RayExecutor
