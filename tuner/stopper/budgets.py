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

    Spent is spent: iterations that a kill, a failure or a clone throws away count, and count again when they are
    trained again; over resumes, too, and a larger budget goes on from what was spent. What a trial has begun and not
    reported counts for nothing, nor do the results that `reuse=` takes over from an earlier experiment. When the budget
    of the experiment is spent every trial ends at its next result: of k trials at a time k - 1 results more are paid.

    Args:
        max_cost: in the unit of the cost; above 0.
        cost_attr: the name under which results say what they, each of them, cost. With "time_this_iter_s", which every
            result has, the budget is in seconds of all workers together.
        cumulative: the results say what the trial has cost so far instead, counted on from its checkpoint, as
            "time_total_s" is. A number below the last one was counted anew from 0.
        per: "experiment" (all trials together) or "trial".

    Results without it, with NaN or a number below 0 there, cost nothing. A run whose results never have it ends with
    `MetricMissingError`.

    >>> stopper = CostStopper(3.0, "dollars")
    >>> [bool(stopper("a", {"dollars": 2.0})), bool(stopper("b", {"dollars": 1.5}))], stopper.stop_all()
    ([False, True], True)
    """

    _remembered = ("_all", "_spent", "_counter", "_free")

    def __init__(
        self, max_cost: float, cost_attr: str = "cost", *, cumulative: bool = False, per: str = "experiment"
    ) -> None:
        self._max_cost, self.cost_attr = number("max_cost", max_cost, above=0), metric_name(cost_attr, "cost_attr")
        require(cumulative in (True, False), "cumulative", cumulative, "accepted are True and False")
        require(per in ("experiment", "trial"), "per", per, "accepted are 'experiment' and 'trial'")
        self._cumulative, self._per = cumulative, per
        self._all = 0.0
        self._spent: dict[str, float] = {}
        """Trial -> what it has cost, where each has a budget."""
        self._counter: dict[str, float] = {}
        """Trial -> its cost so far as it counts it, where that is what it reports."""
        self._free: set[str] = set()
        """Trials that go through results which were paid for in an earlier experiment."""

    def on_trial_start(self, trial_id: str, result: dict[str, Any], *, reused: bool) -> None:
        (self._free.add if reused else self._free.discard)(trial_id)
        if self._cumulative and (not result or self._cost(result) is not None):
            self._counter[trial_id] = self._cost(result) or 0.0

    def on_rollback(self, trial: Any, iteration: int) -> None:
        """Nothing comes back, and what is trained again is told again."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool | Reason:
        cost = self._cost(result)
        if cost is not None:
            more = cost if not self._cumulative else self._since(trial_id, cost)
            if trial_id not in self._free:
                self._all += more
                if self._per == "trial":
                    self._spent[trial_id] = self._spent.get(trial_id, 0.0) + more
        spent = self._spent.get(trial_id, 0.0) if self._per == "trial" else self._all
        if spent < self._max_cost:
            return False
        kind = ReasonKind.CRITERION if self._per == "trial" else ReasonKind.EXPERIMENT
        return Reason(kind, type(self).__name__, metric=self.cost_attr, value=spent, cut=self._max_cost)

    def _cost(self, result: dict[str, Any]) -> float | None:
        cost = score_of(result, self.cost_attr)
        return cost if cost is not None and cost >= 0 else None  # NaN is not

    def _since(self, trial_id: str, cost: float) -> float:
        """What was added to a trial's cost so far."""
        before = self._counter.get(trial_id, 0.0)
        self._counter[trial_id] = cost
        return cost - before if cost >= before else cost

    def stop_all(self) -> bool:
        return self._per == "experiment" and self._all >= self._max_cost

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state({"counter": state["spent"], "free": [], **state})  # older ones have no counters of their own


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
