"""`Due`: what a tracker is still to be told of one trial; newer news take in older, so that it never grows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainables.checkpoint import Checkpoint
from tuner.tracking.tracker import RunEnding

SAVES_KEPT = 64
"""Checkpoints of a trial that may wait; beyond that the oldest are not stored."""


@dataclass(frozen=True, slots=True)
class About:
    """A trial, as a tracker is told of it."""

    trial_id: str
    name: str
    directory: Path
    config: Mapping[str, Any]
    evaluated: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SaveDue:
    """A checkpoint that is to be stored."""

    number: int
    """The trial's saves up to it, counted over all its life."""
    iteration: int
    checkpoint: Checkpoint


@dataclass(slots=True)
class Due:
    """What is to be sent of one trial."""

    about: About
    covered: int = 0
    """Results up to that iteration may be sent."""
    standing: int | None = None
    """An attempt began there: what was sent beyond is void."""
    cloned_at: int | None = None
    """`about` has another config since that iteration."""
    saves: list[SaveDue] = field(default_factory=list)
    ending: RunEnding | None = None

    def take_in(self, newer: Due) -> None:
        """Become what is due after both."""
        self.about = newer.about
        self.covered = newer.covered if newer.standing is not None else max(self.covered, newer.covered)
        if newer.standing is not None:
            self.standing = newer.standing if self.standing is None else min(self.standing, newer.standing)
        self.cloned_at = self.cloned_at if newer.cloned_at is None else newer.cloned_at
        self.saves = [*self.saves, *newer.saves][-SAVES_KEPT:]
        self.ending = newer.ending or (None if newer.standing is not None else self.ending)
