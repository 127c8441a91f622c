"""Stoppers for budgets of results, time or cost, per trial or for the experiment."""

from __future__ import annotations

import datetime
from typing import Any

from trainables.metrics import score_of
from trainables.validation import checked_names
from tuner.clock import Clock, SystemClock
from tuner.error import require
from tuner.experiment.reason import Reason, ReasonKind
from tuner.search.arguments import metric_name, number, seconds, whole_number
from tuner.stopper.stopper import Stopper, TrialStopper


@checked_names
class MaximumIterationStopper(TrialStopper):
    """Ends each trial after `max_iter` results."""

    _remembered = ("_count",)

    def __init__(self, max_iter: int) -> None:
        self._max_iter = whole_number("max_iter", max_iter, least=1)
        self._count: dict[str, int] = {}

    def on_trial_fork(self, trial_id: str, result: dict[str, Any]) -> None:
        self._count[trial_id] = int(result.get("training_iteration", 0))

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool | Reason:
        self._count[trial_id] = count = self._count.get(trial_id, 0) + 1
        if count < self._max_iter:
            return False
        name = type(self).__name__
        return Reason(ReasonKind.CRITERION, name, metric="training_iteration", value=count, cut=self._max_iter)


@checked_names
class MaximumResultsStopper(Stopper):
    """Ends the experiment after `max_results` results of all trials together.

    What runs then ends at its next result, so that of k trials at a time up to k - 1 results more are reported.
    """

    _remembered = ("_count",)

    def __init__(self, max_results: int) -> None:
        self._max_results = whole_number("max_results", max_results, least=1)
        self._count = 0

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self._count += 1
        return self.stop_all()

    def stop_all(self) -> bool:
        return self._count >= self._max_results


@checked_names
class TrialTimeoutStopper(TrialStopper):
    """Ends each trial once it has trained for so long, all its attempts together (`time_total_s` of its results).

    A trial is looked at when it reports; `trial_timeout_s=` of `tune.run` also ends one that does not.

    Args:
        timeout: seconds, or a `datetime.timedelta`.
    """

    _remembered = ()

    def __init__(self, timeout: float | datetime.timedelta) -> None:
        self._timeout = seconds("timeout", timeout)

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool | Reason:
        spent = score_of(result, "time_total_s")
        if spent is None or spent < self._timeout:
            return False
        name = type(self).__name__
        return Reason(ReasonKind.CRITERION, name, metric="time_total_s", value=spent, cut=self._timeout)


@checked_names
class CostStopper(Stopper):
    """Ends the experiment, or each trial, once it has cost so much.

    Args:
        max_cost: in the unit of the metric; above 0.
        metric: what a result cost. With "time_this_iter_s" the budget is in seconds of all workers together.
        cumulative: the metric holds what the trial has cost so far instead.
        per: "experiment" (all trials together) or "trial".

    Results without the metric, or with NaN there, cost nothing.

    >>> stopper = CostStopper(3.0, "dollars")
    >>> [bool(stopper("a", {"dollars": 2.0})), bool(stopper("b", {"dollars": 1.5}))], stopper.stop_all()
    ([False, True], True)
    """

    _remembered = ("_all", "_spent")

    def __init__(
        self, max_cost: float, metric: str = "cost", *, cumulative: bool = False, per: str = "experiment"
    ) -> None:
        self._max_cost, self._metric = number("max_cost", max_cost, above=0), metric_name(metric)
        require(cumulative in (True, False), "cumulative", cumulative, "accepted are True and False")
        require(per in ("experiment", "trial"), "per", per, "accepted are 'experiment' and 'trial'")
        self._cumulative, self._per = cumulative, per
        self._all = 0.0
        self._spent: dict[str, float] = {}
        """Trial -> what it has cost, where that is needed."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool | Reason:
        cost = score_of(result, self._metric)
        if cost is not None and cost == cost:
            before = self._spent.get(trial_id, 0.0)
            more = max(cost - before, 0.0) if self._cumulative else cost
            self._all += more
            if self._cumulative or self._per == "trial":
                self._spent[trial_id] = before + more
        spent = self._spent.get(trial_id, 0.0) if self._per == "trial" else self._all
        if spent < self._max_cost:
            return False
        kind = ReasonKind.CRITERION if self._per == "trial" else ReasonKind.EXPERIMENT
        return Reason(kind, type(self).__name__, metric=self._metric, value=spent, cut=self._max_cost)

    def stop_all(self) -> bool:
        return self._per == "experiment" and self._all >= self._max_cost


@checked_names
class TimeoutStopper(Stopper):
    """Ends the experiment after some time, counted from the first look; after a resume what was left goes on.

    Args:
        timeout: seconds, or a `datetime.timedelta`.
        clock: where time comes from; None: the run's.
    """

    _remembered = ("_left",)

    def __init__(self, timeout: float | datetime.timedelta, clock: Clock | None = None) -> None:
        self._left = seconds("timeout", timeout)
        self._clock = clock
        self._last: float | None = None

    def use_clock(self, clock: Clock) -> None:
        """Take the run's clock, unless one was given."""
        self._clock = self._clock or clock

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        if self._clock is None:
            self._clock = SystemClock()
        now = self._clock.monotonic()
        if self._last is not None:
            self._left -= now - self._last
        self._last = now
        return self._left <= 0

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._last = None
