"""What users ordered and said, as the state of an experiment holds it."""

from __future__ import annotations

from typing import Literal

import msgspec


class OrderRecord(msgspec.Struct, omit_defaults=True):
    """What a user has ordered, and what came of it."""

    order: msgspec.Raw
    at: float
    state: Literal["taken", "done", "refused"] = "taken"
    why: str = ""
    answered_at: float | None = None
    saves: int = 0
    """How many checkpoints the experiment had saved when it was taken."""
    begun: bool = False
    """Another fact says that it was done; that it was answered is the next one, which a kill may have taken."""

    def answered(self, state: Literal["done", "refused"], why: str, at: float) -> None:
        self.state, self.why, self.answered_at = state, why, at


class Note(msgspec.Struct, frozen=True):
    """What a user said of a trial."""

    at: float
    text: str


class SettingChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a user set of a run, and what its script said then."""

    value: int | float | None
    was: int | float | None
    at: float
    total: int | None = None
    """With `num_samples`: how many trials that makes in all; None: no end is known."""
