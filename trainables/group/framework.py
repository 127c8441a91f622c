"""What a framework adds to a group: how ranks are started, and what each of them sets up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trainables.group.launcher import ONE_NODE, ForkLauncher, Launcher, NodeRanks


class Framework:
    """A group without a framework: ranks that know their number, and report together.

    Subclass it for a framework. An object of it travels to the trial's process, pickled.
    """

    preload: Sequence[str] = ()
    """Modules that trials load before their process is forked."""
    timeout_s: float = 1800.0
    """How long ranks wait for one that does not come to `report()`, or to the end, in seconds."""

    spot: NodeRanks = ONE_NODE
    """Where the ranks of this node stand in the group; set in the trial's process, before they start."""

    def launcher(self, size: int) -> Launcher:
        """What starts the ranks. Called in the trial's process."""
        return ForkLauncher()

    def around(self, rank: int, function: Callable[[], Any]) -> Any:
        """Called in each rank: set up, call `function`, tear down; return what it returned."""
        return function()

    def clean(self, data: dict[str, Any]) -> dict[str, Any]:
        """What becomes of the dict in a dict checkpoint before it is written. Called in each rank that reports one."""
        return data
