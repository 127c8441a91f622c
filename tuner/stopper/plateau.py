"""Stoppers for plateaus: they end trials, or the experiment, whose metric no longer improves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from trainables.metrics import score_of
from trainables.validation import checked_names
from tuner.error import SettingError, require
from tuner.experiment.reason import Reason, ReasonKind
from tuner.search.arguments import check_mode, metric_name, number, whole_number
from tuner.stopper.stopper import Stopper, TrialStopper


@checked_names
class TrialPlateauStopper(TrialStopper):
    """Ends a trial whose metric no longer moves.

    Args:
        metric: what is looked at; results without it are not counted among the `num_results`.
        std: it does not move if the standard deviation of its last results is below this.
        num_results: of how many results.
        grace_period: results before which a trial never ends.
        metric_threshold: end only what is at least that good; None: all.
        mode: "min" or "max", needed with a threshold.
    """

    _remembered = ("_count", "_window")

    def __init__(
        self,
        metric: str,
        std: float = 0.01,
        num_results: int = 4,
        grace_period: int = 4,
        metric_threshold: float | None = None,
        mode: str | None = None,
    ) -> None:
        fits = mode in ("min", "max") or (mode is None and metric_threshold is None)
        require(fits, "mode", mode, "with a metric_threshold it is 'min' or 'max'")
        self._metric, self._std, self._mode = _one_metric(self, metric), number("std", std, above=0), mode
        self._num_results = whole_number("num_results", num_results, least=1)
        self._grace_period = whole_number("grace_period", grace_period, least=0)
        self._threshold = None if metric_threshold is None else number("metric_threshold", metric_threshold)
        self._count: dict[str, int] = {}
        self._window: dict[str, list[float]] = {}

    def on_trial_fork(self, trial_id: str, result: dict[str, Any]) -> None:
        self._count[trial_id] = int(result.get("training_iteration", 0))

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool | Reason:
        self._count[trial_id] = count = self._count.get(trial_id, 0) + 1
        score = score_of(result, self._metric)
        if score is None:
            return False
        # A new list each time: the one before may be part of a state.
        self._window[trial_id] = window = [*self._window.get(trial_id, ()), score][-self._num_results :]
        if count < self._grace_period or len(window) < self._num_results:
            return False
        if self._threshold is not None:
            good = score <= self._threshold if self._mode == "min" else score >= self._threshold
            if not good:
                return False
        moves = deviation(window)
        if not moves < self._std:  # NaN moves
            return False
        return Reason(ReasonKind.CRITERION, type(self).__name__, metric=self._metric, value=score)


@checked_names
class ExperimentPlateauStopper(Stopper):
    """Ends the experiment when the best results of all trials no longer move.

    Args:
        metric: what is looked at.
        std: they do not move if the standard deviation of the best ones is at most this; above 0.
        top: how many best ones, from 2.
        mode: "min" or "max".
        patience: results that may still come after that.
    """

    _remembered = ("_best", "_still")

    def __init__(self, metric: str, std: float = 0.001, top: int = 10, mode: str = "min", patience: int = 0) -> None:
        check_mode(mode)
        self._top = whole_number("top", top, least=2)
        self._patience = whole_number("patience", patience, least=0)
        self._metric, self._std, self._mode = _one_metric(self, metric), number("std", std, above=0), mode
        self._best: list[float] = []
        self._still = 0

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        score = score_of(result, self._metric)
        if score is not None and not math.isnan(score):
            self._best = sorted([*self._best, score], reverse=self._mode == "max")[: self._top]
        self._still = self._still + 1 if self.has_plateaued() else 0
        return self.stop_all()

    def has_plateaued(self) -> bool:
        """True if the best results do not move."""
        return len(self._best) == self._top and deviation(self._best) <= self._std

    def stop_all(self) -> bool:
        return self.has_plateaued() and self._still >= self._patience


def _one_metric(stopper: Stopper, metric: Any) -> str:
    if isinstance(metric, (list, tuple)):
        raise SettingError(
            f"{type(stopper).__name__}: metric={metric!r} is not accepted; it looks at one metric. stop=[...] takes a "
            "stopper for each, and ends what any of them ends"
        )
    return metric_name(metric)


def deviation(values: Sequence[float]) -> float:
    """The standard deviation of all values (of them, not of what they are a sample of); NaN and infinities give NaN."""
    mean = sum(values) / len(values)
    if not math.isfinite(mean):
        return math.nan
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
