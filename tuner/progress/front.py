"""`LastPoints`: how trials stand by several metrics: the front of those that none beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainables.dominance import first_front
from trainables.metrics import score_of
from trainables.printable import one_line
from tuner.analysis import scopes
from tuner.experiment.trial import Trial
from tuner.progress import formatting
from tuner.progress.counts import LastScores

Point = tuple[float, ...]
"""A value per metric, each turned so that lower is better."""


class LastPoints(LastScores):
    """The last results of all trials by several metrics: what `analysis.best_trials` goes by.

    Taking in a result costs the same however many there were; `front` looks at all trials if one has changed.

    Args:
        metrics: the first one decides where a single one has to, as in `LastScores`.
        modes: "min" or "max" of each.
    """

    def __init__(self, metrics: Sequence[str], modes: Sequence[str]) -> None:
        super().__init__(metrics[0], modes[0])
        self.metrics, self._modes = tuple(metrics), tuple(modes)
        self._scores: dict[str, tuple[list[float | None], int]] = {}
        """Trial -> the last score of each metric, and the trial's index."""
        self._front: list[tuple[Point, int, str]] | None = []

    def add(self, trial: Trial, result: Mapping[str, Any]) -> None:
        super().add(trial, result)
        before, _ = self._scores.get(trial.trial_id, ([None] * len(self.metrics), 0))
        scores = [score_of(result, name) for name in self.metrics]
        self._set_scores(trial, [old if new is None else new for new, old in zip(scores, before, strict=True)])

    def again(self, trial: Trial) -> None:
        super().again(trial)
        goals = zip(self.metrics, self._modes, strict=True)
        self._set_scores(trial, [scopes.score(trial, metric, mode, "last") for metric, mode in goals])

    def _set_scores(self, trial: Trial, scores: list[float | None]) -> None:
        self._front = None
        self._scores[trial.trial_id] = (scores, trial.index)

    def top(self, count: int) -> list[str]:
        """The front, in the order of the first metric, before the others."""
        front = [trial_id for _, _, trial_id in self.front[:count]]
        others = (each for each in super().top(count + len(front)) if each not in set(front))
        return [*front, *others][:count]

    @property
    def front(self) -> list[tuple[Point, int, str]]:
        """(point, index, id) of the trials that none beats in all metrics, the best in the first one first."""
        if self._front is None:
            points = [(self._point(scores), index, name) for name, (scores, index) in self._scores.items()]
            known = [(point, index, name) for point, index, name in points if point is not None]
            best = set(first_front(point for point, _, _ in known))
            self._front = sorted(each for each in known if each[0] in best)
        return self._front

    def told(self) -> str:
        """How many none beats, and which of them is the best in each metric; "" when nobody has all metrics."""
        if not self.front:
            return ""
        parts = []
        for axis, (metric, mode) in enumerate(zip(self.metrics, self._modes, strict=True)):
            point, index, _ = min(self.front, key=lambda each: (each[0][axis], each[1]))
            parts.append(f"{metric} {formatting.value(turned(point[axis], mode))} (trial {index})")
        count = formatting.counted(len(self.front), "trial")
        return one_line(f"none beats {count} in all of {', '.join(self.metrics)}; best {', '.join(parts)}")

    def _point(self, scores: Sequence[float | None]) -> Point | None:
        """None: it lacks a metric, or one is NaN."""
        known = [score for score in scores if score is not None and score == score]
        whole = len(known) == len(self.metrics)
        return tuple(map(turned, known, self._modes)) if whole else None


def turned(value: float, mode: str) -> float:
    """So that lower is better, and back."""
    return -value if mode == "max" else value


def standing_of(metric: str | Sequence[str] | None, mode: str | Sequence[str] | None) -> LastScores:
    """By one metric, several or none; one mode is that of all."""
    if metric is None or isinstance(metric, str):
        return LastScores(metric, mode if mode is None or isinstance(mode, str) else mode[0])
    modes = [mode or ""] * len(metric) if mode is None or isinstance(mode, str) else list(mode)
    modes = modes if len(modes) == len(metric) else modes[:1] * len(metric)
    return LastPoints(metric, modes) if len(metric) > 1 else LastScores(metric[0], modes[0] or None)
