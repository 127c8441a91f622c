"""The rungs of asynchronous successive halving: one ladder whose rungs stop trials, and one that promotes them."""

from __future__ import annotations

import bisect
import heapq
import math
from typing import Any, NamedTuple


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

    score: float
    rank: int
    """From 1, the best; of equal ones the best place."""
    of: int
    needed: float


class StoppingRung:
    """The results of those who were here, higher is better."""

    def __init__(self, milestone: float) -> None:
        self.milestone = milestone
        self.recorded: dict[str, float] = {}
        self.ordered: list[float] = []
        """All numbers, ascending, so that a cutoff costs the same however many there are."""

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


class StoppingBracket:
    """A ladder of rungs, the highest first: whoever is below a rung's cutoff ends there."""

    def __init__(self, heights: list[float], reduction_factor: float, *, once: bool) -> None:
        self._factor, self._once = reduction_factor, once
        self.rungs = [StoppingRung(height) for height in reversed(heights)]

    def knows(self, trial_id: str) -> bool:
        return any(trial_id in rung.recorded for rung in self.rungs)

    def on_result(self, trial_id: str, time: float, score: float, begun: float = -math.inf) -> Cut | None:
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
            cutoff = rung.cutoff(self._factor)
            rung.record(trial_id, score)
            if cutoff is None or score >= cutoff:  # NaN is not: it is worse than every number
                return None
            return Cut(score, rung.rank(score), len(rung.recorded), cutoff)
        return None

    def get_state(self) -> dict[float, dict[str, float]]:
        return {rung.milestone: dict(rung.recorded) for rung in self.rungs}

    def set_state(self, state: dict[float, dict[str, float]]) -> None:
        for rung in self.rungs:  # by its height: after a resume with another max_t there are others
            rung.recorded = dict(state.get(rung.milestone, {}))
            rung.ordered = sorted(score for score in rung.recorded.values() if not math.isnan(score))

    def __str__(self) -> str:
        texts = []
        for rung in self.rungs:
            cutoff = rung.cutoff(self._factor)
            texts.append(f"{rung.milestone:g}: {'-' if cutoff is None else f'{cutoff:.4g}'}")
        return ", ".join(texts)


class PromotionRung:
    """The results of those who were here, and the best of them; higher is better, of equal ones the earlier."""

    def __init__(self, milestone: float) -> None:
        self.milestone = milestone
        self.recorded: dict[str, float] = {}
        self.promoted: dict[str, None] = {}
        self._ended: set[str] = set()
        """They waited here, and will not go on."""
        self._best: list[tuple[float, int, str]] = []
        """As many as may go on, in a heap, the worst first."""
        self._others: list[tuple[float, int, str]] = []
        """The others, in a heap, the best first: their scores are negated."""

    def record(self, trial_id: str, score: float, factor: float) -> list[str]:
        """Take a result; returns who is among the best `1 / factor` for the first time."""
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
        chosen = [name for name in entered if name not in self.promoted and name not in self._ended]
        self.promoted.update(dict.fromkeys(chosen))
        return chosen

    def promote_one(self) -> list[str]:
        """The best of those that wait, if nobody was promoted yet."""
        if self.promoted:
            return []
        best = min((entry for entry in self._others if entry[2] not in self._ended), default=None)
        if best is None:
            return []
        self.promoted[best[2]] = None
        return [best[2]]

    def give_up(self, trial_id: str) -> None:
        """It has ended: its result stays, but nobody else may go on in its place."""
        if trial_id in self.recorded and trial_id not in self.promoted:
            self._ended.add(trial_id)

    def get_state(self) -> dict[str, Any]:
        return {"recorded": dict(self.recorded), "promoted": list(self.promoted), "ended": sorted(self._ended)}

    def set_state(self, state: dict[str, Any], factor: float) -> None:
        self.recorded, self._best, self._others = {}, [], []
        for trial_id, score in state["recorded"].items():
            self.record(trial_id, score, factor)
        self.promoted, self._ended = dict.fromkeys(state["promoted"]), set(state["ended"])


class PromotionBracket:
    """A ladder of rungs, the highest first: everybody waits at a rung until among its best."""

    def __init__(self, heights: list[float], reduction_factor: float) -> None:
        self._factor = reduction_factor
        self.rungs = [PromotionRung(height) for height in reversed(heights)]

    def knows(self, trial_id: str) -> bool:
        return any(trial_id in rung.recorded for rung in self.rungs)

    def on_result(self, trial_id: str, time: float, score: float, begun: float = -math.inf) -> list[str] | None:
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
