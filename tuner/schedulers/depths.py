"""What is known at each depth of training: the scores of all that were there, and who waits there."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import Any, NamedTuple


class Standing(NamedTuple):
    """A score at a depth; a larger one is better, of equal scores the earlier."""

    score: float
    order: int
    """Minus the number of those that were there before."""


class Depth:
    """One depth. Ranks cost the same however many were there, but for the move of a list's tail."""

    def __init__(self) -> None:
        self.reached: list[Standing] = []
        """Of all that were here, ascending."""
        self.waiting: list[tuple[Standing, str]] = []
        """Those of them that wait here, ascending."""

    def record(self, score: float) -> Standing:
        standing = Standing(score, -len(self.reached))
        bisect.insort(self.reached, standing)
        return standing

    def rank(self, standing: Standing) -> int:
        """From 1, the best."""
        return len(self.reached) - bisect.bisect_left(self.reached, standing)


class Depths:
    """All depths, by `training_iteration`."""

    def __init__(self) -> None:
        self._depths: dict[float, Depth] = {}
        self._waits: dict[str, tuple[float, Standing]] = {}

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waits)

    def reached(self, depth: float) -> int:
        """How many were there."""
        return len(self._depths[depth].reached) if depth in self._depths else 0

    def record(self, depth: float, score: float) -> Standing:
        """A trial came there."""
        return self._depths.setdefault(depth, Depth()).record(score)

    def rank(self, depth: float, standing: Standing) -> int:
        """From 1, the best of those that were there."""
        return self._depths[depth].rank(standing)

    def wait(self, trial_id: str, depth: float, standing: Standing) -> None:
        """It waits there, and nowhere else."""
        self.leave(trial_id)
        self._waits[trial_id] = (depth, standing)
        bisect.insort(self._depths[depth].waiting, (standing, trial_id))

    def leave(self, trial_id: str) -> None:
        """It waits no more."""
        found = self._waits.pop(trial_id, None)
        if found is not None:
            waiting = self._depths[found[0]].waiting
            del waiting[bisect.bisect_left(waiting, (found[1], trial_id))]

    def with_waiting(self) -> list[float]:
        """Where somebody waits, the deepest first."""
        return sorted((depth for depth, there in self._depths.items() if there.waiting), reverse=True)

    def waiting_at(self, depth: float) -> Iterator[tuple[int, str]]:
        """(rank, trial_id) of those that wait at a depth, from the best on."""
        there = self._depths[depth]
        return ((there.rank(standing), trial_id) for standing, trial_id in reversed(there.waiting))

    def waiting(self) -> list[str]:
        """All that wait, the deepest first, at each depth from the best on."""
        return [trial_id for depth in self.with_waiting() for _, trial_id in self.waiting_at(depth)]

    def worst(self) -> Iterator[tuple[float, int, str]]:
        """(depth, rank, trial_id) of the worst that waits at each depth."""
        for depth, there in self._depths.items():
            if there.waiting:
                standing, trial_id = there.waiting[0]
                yield depth, there.rank(standing), trial_id

    def get_state(self) -> dict[str, Any]:
        reached = {depth: [tuple(each) for each in there.reached] for depth, there in self._depths.items()}
        return {"reached": reached, "waits": {name: (depth, tuple(at)) for name, (depth, at) in self._waits.items()}}

    def set_state(self, state: dict[str, Any]) -> None:
        self._depths, self._waits = {}, {}
        for depth, reached in state["reached"].items():
            self._depths[depth] = there = Depth()
            there.reached = [Standing(*each) for each in reached]
        for trial_id, (depth, standing) in state["waits"].items():
            self.wait(trial_id, depth, Standing(*standing))
