"""What a trial began with that was trained in an earlier experiment (`reuse=`)."""

from __future__ import annotations

import msgspec


class Reused(msgspec.Struct, frozen=True):
    """A trial begins with what a trial of an earlier experiment came to with the same config (`reuse=`)."""

    experiment: str
    """Its directory, or its URI, as it may be shown."""
    trial: str
    """The id of that trial."""
    iteration: int
    """Of the checkpoint that was copied."""

    def __str__(self) -> str:
        return f"{self.experiment}: {self.trial}@{self.iteration}"

    def is_of(self, other: Reused) -> bool:
        """Whether both are of one trial."""
        return (self.experiment, self.trial) == (other.experiment, other.trial)
