"""The rungs of asynchronous successive halving: one ladder whose rungs stop trials, and one that promotes them."""

from __future__ import annotations

import abc
import bisect
import heapq
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

S = TypeVar("S")
"""What is compared at a rung: a score, or the point of several objectives."""


def milestones(grace_period: float, max_t: float, reduction_factor: float, start: int) -> list[float]:
    """Where the rungs lie, the lowest first; the first `start` ones are left out."""
    heights = []
    height = grace_period * reduction_factor**start
    while height <= max_t * (1 + 1e-12):  # a rung at max_t must not be lost to rounding
        heights.append(height)
        start += 1
        height = grace_period * reduction_factor**start
    return heights


class Cut(NamedTuple):
    """Where a trial stood that does not go on."""

    score: Any
    rank: int
    """From 1, the best; of equal ones the best place."""
    of: int
    needed: float | None = None
    """The score that would have gone on, where there is one."""
    front: int | None = None
    """Of several objectives: the front that it is in, from 1."""


class RungThatStops(abc.ABC, Generic[S]):
    """The results of those who were here, each a score or a point."""

    def __init__(self, milestone: float) -> None:
        self.milestone = milestone
        self.recorded: dict[str, S] = {}

    @abc.abstractmethod
    def judge(self, trial_id: str, score: S, factor: float) -> Cut | None:
        """Take a result; None: the trial is good enough to go on."""

    @abc.abstractmethod
    def restore(self, recorded: Mapping[str, S]) -> None:
        """Have these results and no others."""

    @abc.abstractmethod
    def text(self, factor: float) -> str:
        """What it takes to go on, briefly."""


class StoppingRung(RungThatStops[float]):
    """Scores, higher is better."""

    def __init__(self, milestone: float) -> None:
        super().__init__(milestone)
        self.ordered: list[float] = []
        """All numbers, ascending, so that a cutoff costs the same however many there are."""

    def judge(self, trial_id: str, score: float, factor: float) -> Cut | None:
        cutoff = self.cutoff(factor)
        self.record(trial_id, score)
        if cutoff is None or score >= cutoff:  # NaN is not: it is worse than every number
            return None
        return Cut(score, self.rank(score), len(self.recorded), cutoff)

    def record(self, trial_id: str, score: float) -> None:
        self.recorded[trial_id] = score
        if not math.isnan(score):
            bisect.insort(self.ordered, score)

    def rank(self, score: float) -> int:
        """The place of a score that is recorded, from 1, the best."""
        if math.isnan(score):
            return len(self.recorded)
        return len(self.ordered) - bisect.bisect_right(self.ordered, score) + 1

    def cutoff(self, reduction_factor: float) -> float | None:
        """The 1 - 1/reduction_factor percentile (linear, NaN left out); None: there is no number yet."""
        return percentile(self.ordered, (1 - 1 / reduction_factor) * 100) if self.ordered else None

    def restore(self, recorded: Mapping[str, float]) -> None:
        self.recorded = dict(recorded)
        self.ordered = sorted(score for score in self.recorded.values() if not math.isnan(score))

    def text(self, factor: float) -> str:
        cutoff = self.cutoff(factor)
        return "-" if cutoff is None else f"{cutoff:.4g}"


class StoppingBracket(Generic[S]):
    """A ladder of rungs, the highest first: who is among the worse part of a rung ends there."""

    def __init__(
        self, heights: list[float], reduction_factor: float, rung: Callable[[float], RungThatStops[S]], *, once: bool
    ) -> None:
        self._factor, self._once = reduction_factor, once
        self.rungs = [rung(height) for height in reversed(heights)]

    def knows(self, trial_id: str) -> bool:
        return any(trial_id in rung.recorded for rung in self.rungs)

    def on_result(self, trial_id: str, time: float, score: S, begun: float = -math.inf) -> Cut | None:
        """Record a result at the highest rung that it reaches and that the trial was not at; None: it goes on.

        Args:
            begun: where the trial began; it is not compared at the rungs up to there.
        """
        for rung in self.rungs:
            if time < rung.milestone or rung.milestone <= begun:
                continue
            if trial_id in rung.recorded:
                if self._once:  # it was decided there that the trial goes on
                    return None
                continue
            return rung.judge(trial_id, score, self._factor)
        return None

    def get_state(self) -> dict[float, dict[str, S]]:
        return {rung.milestone: dict(rung.recorded) for rung in self.rungs}

    def set_state(self, state: dict[float, dict[str, S]]) -> None:
        for rung in self.rungs:  # by its height: after a resume with another max_t there are others
            rung.restore(state.get(rung.milestone, {}))

    def __str__(self) -> str:
        return ", ".join(f"{rung.milestone:g}: {rung.text(self._factor)}" for rung in self.rungs)


class RungThatPromotes(abc.ABC, Generic[S]):
    """The results of those who were here, each a score or a point, and who of them went on."""

    def __init__(self, milestone: float) -> None:
        self.milestone = milestone
        self.recorded: dict[str, S] = {}
        self.promoted: dict[str, None] = {}
        self._ended: set[str] = set()
        """They waited here, and will not go on."""

    @abc.abstractmethod
    def record(self, trial_id: str, score: S, factor: float) -> list[str]:
        """Take a result; returns who is among the best `1 / factor` for the first time."""

    @abc.abstractmethod
    def best_waiting(self) -> str | None:
        """The best of those that wait, where nobody was promoted yet."""

    @abc.abstractmethod
    def _forget(self) -> None:
        """Have no results."""

    def promote_one(self) -> list[str]:
        """The best of those that wait, if nobody was promoted yet."""
        best = None if self.promoted else self.best_waiting()
        return [] if best is None else self._promote([best])

    def _promote(self, names: Iterable[str]) -> list[str]:
        """Those of some that can go on and have not yet: they do."""
        chosen = [name for name in names if name not in self.promoted and name not in self._ended]
        self.promoted.update(dict.fromkeys(chosen))
        return chosen

    def give_up(self, trial_id: str) -> None:
        """It has ended: its result stays, but nobody else may go on in its place."""
        if trial_id in self.recorded and trial_id not in self.promoted:
            self._ended.add(trial_id)

    def get_state(self) -> dict[str, Any]:
        return {"recorded": dict(self.recorded), "promoted": list(self.promoted), "ended": sorted(self._ended)}

    def set_state(self, state: dict[str, Any], factor: float) -> None:
        self._forget()
        self.promoted, self._ended = {}, set()
        for trial_id, score in state["recorded"].items():
            self.record(trial_id, score, factor)
        self.promoted, self._ended = dict.fromkeys(state["promoted"]), set(state["ended"])


class PromotionRung(RungThatPromotes[float]):
    """Scores, higher is better, of equal ones the earlier; the best of them stand apart."""

    def __init__(self, milestone: float) -> None:
        super().__init__(milestone)
        self._best: list[tuple[float, int, str]] = []
        """As many as may go on, in a heap, the worst first."""
        self._others: list[tuple[float, int, str]] = []
        """The others, in a heap, the best first: their scores are negated."""

    def record(self, trial_id: str, score: float, factor: float) -> list[str]:
        entry = (score, -len(self.recorded), trial_id)
        self.recorded[trial_id] = score
        entered = []
        if not math.isnan(score):  # who is worse than every number is never promoted
            worst = heapq.heappushpop(self._best, entry)
            if worst is not entry:
                entered.append(trial_id)
            heapq.heappush(self._others, (-worst[0], -worst[1], worst[2]))
        while self._others and len(self._best) < int(len(self.recorded) / factor):
            negated, number, name = heapq.heappop(self._others)
            heapq.heappush(self._best, (-negated, -number, name))
            entered.append(name)
        return self._promote(entered)

    def best_waiting(self) -> str | None:
        best = min((entry for entry in self._others if entry[2] not in self._ended), default=None)
        return None if best is None else best[2]

    def _forget(self) -> None:
        self.recorded, self._best, self._others = {}, [], []


class PromotionBracket(Generic[S]):
    """A ladder of rungs, the highest first: everybody waits at a rung until among its best."""

    def __init__(
        self, heights: list[float], reduction_factor: float, rung: Callable[[float], RungThatPromotes[S]]
    ) -> None:
        self._factor = reduction_factor
        self.rungs = [rung(height) for height in reversed(heights)]

    def knows(self, trial_id: str) -> bool:
        return any(trial_id in rung.recorded for rung in self.rungs)

    def on_result(self, trial_id: str, time: float, score: S, begun: float = -math.inf) -> list[str] | None:
        """Record a result at the highest rung that it reaches, above where it began; who is promoted by it, or None: no
        rung is reached.
        """
        for rung in self.rungs:
            if time >= rung.milestone > begun:
                if trial_id in rung.recorded:
                    return None
                return rung.record(trial_id, score, self._factor)
        return None

    def promote_one(self) -> list[str]:
        """The best of the highest rung that has promoted nobody: there are too few trials for the rule."""
        return next((chosen for rung in self.rungs if (chosen := rung.promote_one())), [])

    def height_of(self, trial_id: str) -> float:
        """The highest rung that it was at; 0: none."""
        return next((rung.milestone for rung in self.rungs if trial_id in rung.recorded), 0.0)

    def give_up(self, trial_id: str) -> None:
        for rung in self.rungs:
            rung.give_up(trial_id)

    def get_state(self) -> dict[float, Any]:
        return {rung.milestone: rung.get_state() for rung in self.rungs}

    def set_state(self, state: dict[float, Any]) -> None:
        for rung in self.rungs:
            rung.set_state(state.get(rung.milestone, {"recorded": {}, "promoted": [], "ended": []}), self._factor)

    def __str__(self) -> str:
        return ", ".join(f"{rung.milestone:g}: {len(rung.recorded)} ({len(rung.promoted)} up)" for rung in self.rungs)


def percentile(ordered: list[float], percent: float) -> float:
    """numpy's linear percentile of an ascending list, digit for digit."""
    position = (len(ordered) - 1) * (percent / 100)
    below = math.floor(position)
    if below >= len(ordered) - 1:
        return ordered[-1]
    low, high, part = ordered[below], ordered[below + 1], position - below
    if low == high or math.isinf(low) or math.isinf(high):
        return low if part < 0.5 else high
    return low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)
