"""The trials of an experiment, in order, by id, and as people call them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from tuner.experiment.trial import Trial


class Trials(Sequence[Trial]):
    """The trials in order of creation, live and read-only; never a copy."""

    def __init__(self, by_id: dict[str, Trial], order: list[Trial]) -> None:
        self._by_id, self._order = by_id, order

    @overload
    def __getitem__(self, index: int) -> Trial: ...
    @overload
    def __getitem__(self, index: slice) -> list[Trial]: ...
    def __getitem__(self, index: int | slice) -> Trial | list[Trial]:
        return self._order[index]

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Trial]:
        return iter(self._order)

    def get(self, trial_id: str) -> Trial | None:
        return self._by_id.get(trial_id)


def find_trial(trials: Sequence[Trial], given: str) -> Trial | None:
    """The trial of that id, name, directory's name or number, as people give it."""
    known = trials.get(given) if isinstance(trials, Trials) else None
    if known is not None:
        return known
    return next((one for one in trials if given in (one.trial_id, one.name, one.dirname, str(one.index))), None)
