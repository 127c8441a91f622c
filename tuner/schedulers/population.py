"""Records of population based training: members, and exploits."""

from __future__ import annotations

from typing import Any

from trainables.quick_dataclass import dataclass


@dataclass
class Member:
    """What is remembered of a trial of the population."""

    number: int
    """In the order of creation: of equal scores the earlier one's is the better."""
    config: dict[str, Any]
    time: float = 0.0
    iteration: int = 0
    score: float | None = None
    """At its last interval, turned so that higher is better."""
    perturbed_at: float = 0.0
    born: int = -1
    """The iteration at which it became a clone: its checkpoints up to there are of another life and config."""
    saved: int | None = None
    """The iteration of the newest checkpoint of this life."""
    ahead: int = 0
    """By how many iterations its weights are older than its own count says."""
    queues: bool = True
    """It waits to be started, for all that is known."""
    arrived: int | None = None
    """synch: the iteration with which it reached the end of the interval."""

    @property
    def waits(self) -> bool:
        """synch: it is at the end of the interval, and saved since."""
        return self.arrived is not None and self.saved is not None and self.saved >= self.arrived


@dataclass(frozen=True)
class ExploitStep:
    """An exploit, as the policy files of Ray tell it."""

    trial: str
    donor: str
    iteration: int
    """The trial's."""
    donor_iteration: int
    """For how many iterations the weights that it goes on from were trained, whichever trials they were of."""
    donor_config: dict[str, Any]
    config: dict[str, Any]
