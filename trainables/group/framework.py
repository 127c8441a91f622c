"""What a group is: how many ranks, and what a framework adds: how they are started, what each of them sets up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from trainables.group.launcher import ONE_NODE, ForkLauncher, Launcher, NodeRanks
from trainables.quick_dataclass import dataclass


class Framework:
    """A group without a framework: ranks that know their number, and report together.

    Subclass it for a framework. An object of it travels to the trial's process, pickled.
    """

    preload: Sequence[str] = ()
    """Modules that trials load before their process is forked."""
    timeout_s: float = 1800.0
    """How long ranks wait for one that does not come to `report()`, or to the end, in seconds."""

    node: NodeRanks = ONE_NODE
    """Which ranks this node has; set in the trial's process, before they start."""

    def launcher(self, size: int) -> Launcher:
        """What starts the ranks. Called in the trial's process."""
        return ForkLauncher()

    def around(self, rank: int, function: Callable[[], Any]) -> Any:
        """Called in each rank: set up, call `function`, tear down; return what it returned."""
        return function()

    def waited(self, error: BaseException) -> bool:
        """Whether what a rank raised may come of the end of another one, for which it waited. Called in that rank."""
        return isinstance(error, TimeoutError | ConnectionError | threading.BrokenBarrierError)

    def clean(self, data: dict[str, Any]) -> dict[str, Any]:
        """What becomes of the dict in a dict checkpoint before it is written. Called in each rank that reports one."""
        return data


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group, as all its processes know it.

    Args:
        framework: how ranks are started, and what each sets up.
        size: how many ranks.
        threads: threads for the libraries of each rank.
        metadata: what the ranks' `get_context().get_metadata()` returns.
        collects: what all ranks report is part of the result, as a list under `_ranks`, and what they return is asked
            for, however large it is.
    """

    framework: Framework
    size: int
    threads: int = 1
    metadata: Mapping[str, Any] = field(default_factory=dict)
    collects: bool = False
