"""An attempt that runs, as the loop knows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from trainables import wire
from trainables.wire import CheckpointRef
from tuner.executors.base import Resources
from tuner.experiment.reason import Reason
from tuner.experiment.trial import Trial


@dataclass(slots=True)
class Running:
    """An attempt from its selection to its exit."""

    trial: Trial
    attempt: int
    resources: Resources
    launched: bool = False
    said: wire.Finished | wire.AttemptErrored | wire.Preempted | None = None
    then: Literal["continue", "stop", "pause"] = "continue"
    """What it was told last."""
    why: Reason | None = None
    """Why it is to pause, from the first time on that this was decided."""
    published: bool = False
    """The attempt has a checkpoint of its own: what it started from is not needed any more."""
    open: set[CheckpointRef] = field(default_factory=set)
    """Checkpoints that its process reads, after the one that it started from."""
    refused: bool = False
    """A save did not fit into the budget: the process is being ended, and nothing that it still says counts."""
    pausing: bool = False
    """It is to pause, and runs on to its next save."""
