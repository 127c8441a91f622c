"""The rungs of asynchronous successive halving where trials are compared by several objectives."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.schedulers.objectives import PlaceOrder, Point, has_place
from tuner.schedulers.rungs import Cut, RungThatPromotes, RungThatStops


class ParetoStoppingRung(RungThatStops[Point]):
    """Who is among the best goes on: one, and one of every `factor` of all but two.

    That is as many as pass the percentile that a single score has to reach, its interpolation aside.
    """

    def __init__(self, milestone: float) -> None:
        super().__init__(milestone)
        self._ranking = PlaceOrder()

    def judge(self, trial_id: str, score: Point, factor: float) -> Cut | None:
        self.recorded[trial_id] = score
        self._ranking.add(score)
        front, rank = self._ranking.place(score)
        places = max(1.0, 1 + (self._ranking.placed - 2) / factor if has_place(score) else 1.0)
        return None if rank <= places else Cut(score, rank, len(self.recorded), front=front)

    def restore(self, recorded: Mapping[str, Point]) -> None:
        self.recorded, self._ranking = dict(recorded), PlaceOrder()
        for point in self.recorded.values():
            self._ranking.add(point)

    def text(self, factor: float) -> str:
        return f"{len(self._ranking.first)} of {len(self.recorded)} unbeaten" if self.recorded else "-"


class ParetoPromotionRung(RungThatPromotes[Point]):
    """Of equal ones the earlier goes on first. Where a front is cut, who has gone on keeps the place."""

    def __init__(self, milestone: float) -> None:
        super().__init__(milestone)
        self._forget()

    def record(self, trial_id: str, score: Point, factor: float) -> list[str]:
        self.recorded[trial_id] = score
        self._ranking.add(score)
        if has_place(score):
            self._at.setdefault(score, []).append(trial_id)
        return self._promote(self._best(int(len(self.recorded) / factor)))

    def _best(self, count: int) -> list[str]:
        gone_on = {self.recorded[name] for name in self.promoted}
        return [name for point in self._ranking.top(count, chosen=gone_on) for name in self._at[point]][:count]

    def best_waiting(self) -> str | None:
        enough = self._best(len(self._ended) + 1)
        return next((name for name in enough if name not in self._ended), None)

    def _forget(self) -> None:
        self.recorded, self._ranking = {}, PlaceOrder()
        self._at: dict[Point, list[str]] = {}
