"""`ProgressScheduler`: base of schedulers that compare trials by a metric at equal progress."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

from trainables.metrics import nearest_keys, score_of
from tuner.error import SettingError
from tuner.experiment.reason import Reason, ReasonKind
from tuner.schedulers.base import Directive, TrialScheduler, TrialView
from tuner.search.arguments import metric_name
from tuner.search.searcher import Metric

log = logging.getLogger(__name__)


class ProgressScheduler(TrialScheduler):
    """Reads a result as (time, score), where a higher score is the better one."""

    needs_metric = True
    _orders: Sequence[Directive] = ()
    """What is to happen to those that wait, since `orders` was asked last."""

    def __init__(self, *, time_attr: str, metric: Metric, mode: Metric) -> None:
        super().__init__(metric=metric, mode=mode)
        self.time_attr = metric_name(time_attr, "time_attr")
        self._warned: set[str] = set()

    def orders(self) -> Sequence[Directive]:
        orders, self._orders = self._orders, []
        return orders

    def on_trial_complete(self, trial: TrialView, result: dict[str, Any]) -> None:
        self.on_trial_remove(trial)

    def on_trial_error(self, trial: TrialView) -> None:
        self.on_trial_remove(trial)

    def _time(self, result: dict[str, Any]) -> float | None:
        time_attr = str(self.time_attr)
        time = score_of(result, time_attr)
        if time is None and result:
            self._warn(time_attr, result)
        return None if time is None or math.isnan(time) else time

    def _score(self, result: dict[str, Any]) -> float | None:
        """The metric, turned so that higher is better; NaN stays."""
        if not isinstance(self._metric, str):
            raise SettingError(f"{type(self).__name__} needs a metric: give metric= and mode= to it or to the run")
        score = score_of(result, self._metric)
        if score is None:
            return None
        return -score if self._mode == "min" else score

    def _reason(
        self, kind: ReasonKind, score: float | None = None, *, rank: int | None = None, of: int | None = None,
        cut: float | None = None,
    ) -> Reason:  # fmt: skip
        """A reason in the metric's own direction; `score` and `cut` are turned so that higher is better."""
        if self._mode == "min":
            score, cut = None if score is None else -score, None if cut is None else -cut
        metric = self._metric if isinstance(self._metric, str) else None
        return Reason(kind, type(self).__name__, metric=metric, value=score, rank=rank, of=of, cut=cut)

    def _limit(self, time: float, limit: float) -> Reason:
        """It has trained as long as it may, in units of `time_attr`."""
        return Reason(ReasonKind.LIMIT, type(self).__name__, metric=self.time_attr, value=time, cut=limit)

    def _warn(self, name: str, result: dict[str, Any]) -> None:
        if name not in self._warned:
            self._warned.add(name)
            near = ", ".join(nearest_keys(result, name))
            log.warning(
                "%s: a result has no number %r, so it decides nothing; it has: %s", type(self).__name__, name, near
            )
