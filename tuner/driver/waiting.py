"""The trials that wait for room: what the loop keeps, and what a scheduler sees of it."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from tuner.experiment.trial import Trial


class Waiting:
    """Trials in the order in which they began to wait. Adding and removing cost the same however many there are."""

    def __init__(self, trials: Iterable[Trial] = ()) -> None:
        # Not a dict: finding its first item again and again walks over all that were removed before it.
        self._trials = OrderedDict((trial.trial_id, trial) for trial in trials)
        self.view: Sequence[Trial] = _View(self._trials)
        """Live and read-only."""

    def __len__(self) -> int:
        return len(self._trials)

    def __contains__(self, trial: Trial) -> bool:
        return trial.trial_id in self._trials

    def add(self, trial: Trial) -> None:
        self._trials[trial.trial_id] = trial

    def remove(self, trial: Trial) -> None:
        del self._trials[trial.trial_id]


class _View(Sequence[Trial]):
    """The trials as a sequence: an item costs as many steps as it is away from the nearer end."""

    def __init__(self, trials: OrderedDict[str, Trial]) -> None:
        self._trials = trials

    @overload
    def __getitem__(self, index: int) -> Trial: ...
    @overload
    def __getitem__(self, index: slice) -> list[Trial]: ...
    def __getitem__(self, index: int | slice) -> Trial | list[Trial]:
        if isinstance(index, slice):
            return list(self._trials.values())[index]
        count = len(self._trials)
        at = range(count)[index]
        if at < count // 2 or at == 0:
            return next(itertools.islice(self._trials.values(), at, None))
        return next(itertools.islice(reversed(self._trials.values()), count - 1 - at, None))

    def __len__(self) -> int:
        return len(self._trials)

    def get(self, trial_id: str) -> Trial | None:
        """Whoever waits under that trial_id, at the cost of one."""
        return self._trials.get(trial_id)

    def __iter__(self) -> Iterator[Trial]:
        return iter(self._trials.values())

    def __contains__(self, item: object) -> bool:
        return isinstance(item, Trial) and self._trials.get(item.trial_id) is item
