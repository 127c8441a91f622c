"""A bracket of HyperBand: trials that wait for each other at a rung."""

from __future__ import annotations

import math
from typing import Any

from trainables.metrics import rank_of
from tuner.schedulers.rungs import Cut


class Bracket:
    """So many trials are trained to the first rung; the best of them go on to the next one, and so to the last.

    Args:
        number: which one it is of all brackets.
        band: which band it belongs to.
        size: how many trials it begins with.
        rungs: at which times it is halved, ascending; the last one is its end.
        factor: one of so many goes on.
    """

    def __init__(self, number: int, band: int, size: int, rungs: list[int], factor: float) -> None:
        self.number, self.band, self._rungs, self._factor = number, band, list(rungs), factor
        self.size = size
        """How many may go on at the current rung."""
        self._room = size
        """How many may still join."""
        self.live: dict[str, dict[int, float]] = {}
        """Trial -> rung -> its first result there. Who saves seldom may be ahead of the others."""
        self._rung = 0
        self._not_ready: dict[str, None] = {}
        self._reached: dict[str, float] = {}
        self._done = 0.0
        """Time that was trained in it."""
        self._work = 0
        """What all of it takes."""
        for rung in rungs:
            self._work += size * rung
            size = math.ceil(size / factor)

    @property
    def full(self) -> bool:
        return self._room == 0

    @property
    def end(self) -> int:
        """The last rung."""
        return self._rungs[-1]

    @property
    def halvings_left(self) -> int:
        """How often it will be halved yet."""
        return len(self._rungs) - 1 - self._rung

    @property
    def may_halve(self) -> bool:
        """Whether there is something to halve, and nobody who is not at the rung yet."""
        return self.halvings_left > 0 and bool(self.live) and not self._not_ready

    def add(self, trial_id: str) -> None:
        self.live[trial_id] = {}
        self._not_ready[trial_id] = None
        self._reached[trial_id] = 0.0
        self._room -= 1

    def begin_at(self, trial_id: str, time: float) -> None:
        """It was trained up to there elsewhere."""
        self._reached[trial_id] = time

    def close(self) -> None:
        """Nobody joins any more."""
        self._room = 0

    def remove(self, trial_id: str) -> float:
        """It goes; returns the time that it had reached."""
        self.live.pop(trial_id, None)
        self._not_ready.pop(trial_id, None)
        return self._reached.pop(trial_id, 0.0)

    def reach(self, trial_id: str, time: float, score: float) -> None:
        """Take a result. At every rung the first one there is compared, so that all were trained equally long."""
        self._done += time - self._reached[trial_id]
        self._reached[trial_id] = time
        marks = self.live[trial_id]
        for rung in range(self._rung, len(self._rungs)):
            if time >= self._rungs[rung]:
                marks.setdefault(rung, score)
        if self._rung in marks:
            self._not_ready.pop(trial_id, None)

    def is_ready(self, trial_id: str) -> bool:
        """Whether it has reached the rung at which the bracket stands."""
        return trial_id not in self._not_ready

    def halve(self) -> list[tuple[str, Cut]]:
        """Go on to the next rung with the best; returns the others, the worst first."""
        by_score = sorted(self.live, key=lambda trial_id: rank_of(self.live[trial_id][self._rung]))
        self.size = math.ceil(self.size / self._factor)
        of, needed = len(by_score), self.live[by_score[-self.size :][0]][self._rung]
        dropped = [
            (trial_id, Cut(self.live[trial_id][self._rung], of - place, of, needed))
            for place, trial_id in enumerate(by_score[: -self.size])
        ]
        for trial_id, _ in dropped:
            self.remove(trial_id)
        self._rung += 1
        if self._room > 0:  # who was full once is not filled again when trials of it end early
            self._room = max(0, self.size - len(self.live))
        self._not_ready = {trial_id: None for trial_id, marks in self.live.items() if self._rung not in marks}
        return dropped

    def completion(self) -> float:
        """How much of its work is done, from 0 to 1; not exact, for who ends early has done less."""
        if self.halvings_left == 0 and not self._not_ready:
            return 1.0
        return min(self._done / self._work, 1.0)

    def get_state(self) -> dict[str, Any]:
        copied = {"live": {trial_id: dict(marks) for trial_id, marks in self.live.items()}}
        return vars(self) | copied | {"_not_ready": dict(self._not_ready), "_reached": dict(self._reached)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Bracket:
        bracket = cls.__new__(cls)
        bracket.__dict__.update(state)
        return bracket

    def __str__(self) -> str:
        return (
            f"bracket {self.number}: size {self.size}, rung {self._rungs[self._rung]}, trials {len(self.live)}, "
            f"{self.completion():.1%}"
        )
