"""The median stopping rule."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import Any

from trainables.validation import checked_names, flag
from tuner.experiment.reason import ReasonKind
from tuner.schedulers.base import Decision, Reasoned, T, TrialView, Verdict
from tuner.schedulers.holding import Holding
from tuner.schedulers.progress import ProgressScheduler
from tuner.schedulers.rungs import percentile
from tuner.search.arguments import check_number, whole_number

_COMPARED = 1000


@checked_names
class MedianStoppingRule(ProgressScheduler):
    """Stops a trial whose best result so far is worse than the median of the others' running means at that time.

    Compared are those that have come at least so far, running and ended ones; of more than a thousand, those that
    reported last.

    Args:
        time_attr: what progress is measured by; it must not go down.
        metric, mode: what is compared; None: the run's.
        grace_period: trials run at least so long, in units of `time_attr`; means begin there.
        min_samples_required: how many others there have to be.
        min_time_slice: where there are fewer, and trials wait, one that ran longer than this since its last pause makes
            room for them.
        hard_stop: False: a trial that would be stopped pauses instead, and runs to its end when no other is left.

    Raises:
        SettingError: a number out of its range.

    Example:
        >>> MedianStoppingRule(metric="loss", mode="min", grace_period=5).debug_string()
        'Using MedianStoppingRule: num_stopped=0'

    Source: Golovin et al. 2017, "Google Vizier: A Service for Black-Box Optimization", section 3.2.2.
    """

    _remembered = ("_trials", "_waiting", "_spared", "_last_pause", "_stopped")

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        grace_period: float = 60.0,
        min_samples_required: int = 3,
        min_time_slice: float = 0,
        hard_stop: bool = True,
    ) -> None:
        super().__init__(time_attr=time_attr, metric=metric, mode=mode)
        check_number("grace_period", grace_period, lambda number: 0 <= number < math.inf, "a finite number >= 0")
        check_number("min_time_slice", min_time_slice, lambda number: 0 <= number < math.inf, "a finite number >= 0")
        whole_number("min_samples_required", min_samples_required, least=1)
        self._grace_period, self._min_samples, self._slice = grace_period, min_samples_required, min_time_slice
        self._hard_stop = flag("hard_stop", hard_stop)
        self._trials = Holding()
        self._waiting: dict[str, None] = {}
        """Free ones that have not begun, or made room for others: who runs makes room for these."""
        self._spared: dict[str, None] = {}
        """They were to be stopped, and run to their end all the same."""
        self._last_pause: dict[str, float] = {}
        self._curves: dict[str, _Curve] = {}
        self._stopped = 0

    def on_trial_add(self, trial: TrialView) -> None:
        self._trials.let_run(trial.trial_id)
        self._waiting[trial.trial_id] = None

    def on_trial_start(self, trial: TrialView) -> None:
        self._waiting.pop(trial.trial_id, None)
        if trial.trial_id not in self._trials.held:
            self._trials.let_run(trial.trial_id)

    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Verdict | Reasoned:
        trial_id = trial.trial_id
        time, score = self._time(result), self._score(result)
        if trial_id in self._trials.held:
            return Reasoned(Decision.PAUSE, self._reason(ReasonKind.WORSE, score))
        if time is None or score is None or trial_id in self._spared:
            return Decision.CONTINUE
        curve = self._record(trial_id, time, score)
        if time < self._grace_period:
            return Decision.CONTINUE
        means = [curve.mean_at(time) for other, curve in self._curves.items() if other != trial_id]
        others = sorted(mean for mean in means if mean is not None)
        if len(others) < self._min_samples:
            return self._make_room(trial_id, time)
        median = percentile(others, 50)
        if curve.best >= median:
            return Decision.CONTINUE
        self._stopped += 1
        rank = len(others) - bisect.bisect_right(others, curve.best) + 1
        worse = self._reason(ReasonKind.WORSE, curve.best, rank=rank, of=len(others) + 1, cut=median)
        if self._hard_stop:
            return Reasoned(Decision.STOP, worse)
        self._trials.hold(trial_id)
        return Reasoned(Decision.PAUSE, worse)

    def _record(self, trial_id: str, time: float, score: float) -> _Curve:
        curve = self._curves.pop(trial_id, None) or _Curve()
        self._curves[trial_id] = curve  # last: those that reported last are compared
        curve.add(time, score, counts=time >= self._grace_period)
        if len(self._curves) > _COMPARED + 1:
            del self._curves[next(iter(self._curves))]
        return curve

    def _make_room(self, trial_id: str, time: float) -> Verdict | Reasoned:
        """There are too few others to compare with: let one that waits run, so that there are more."""
        ran = time - self._last_pause.get(trial_id, -math.inf)
        if ran <= self._slice or not any(other != trial_id for other in self._waiting):
            return Decision.CONTINUE
        self._last_pause[trial_id] = time
        self._waiting[trial_id] = None
        self._trials.drop(trial_id)
        self._trials.let_run(trial_id)  # at the end of the queue
        return Reasoned(Decision.PAUSE, self._reason(ReasonKind.WAITS))

    def on_trial_complete(self, trial: TrialView, result: dict[str, Any]) -> None:
        time, score = self._time(result), self._score(result)
        curve = self._curves.get(trial.trial_id)
        if time is not None and score is not None and trial.trial_id not in self._spared:
            if curve is None or time > curve.reached:  # a stopper ended the trial with it, and nobody asked about it
                self._record(trial.trial_id, time, score)
        self.on_trial_remove(trial)

    def on_trial_remove(self, trial: TrialView) -> None:
        self._trials.drop(trial.trial_id)
        self._waiting.pop(trial.trial_id, None)
        self._spared.pop(trial.trial_id, None)
        self._last_pause.pop(trial.trial_id, None)

    def on_idle(self) -> None:
        for trial_id in list(self._trials.held):
            self._spared[trial_id] = None
            self._trials.let_run(trial_id)

    def choose_trial_to_run(self, pending: Sequence[T]) -> T | None:
        if pending and pending[0].trial_id not in self._trials.held:
            return pending[0]
        return next(iter(self._trials.runnable(pending)), None)

    def debug_string(self) -> str:
        return f"Using MedianStoppingRule: num_stopped={self._stopped}"

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "curves": {name: curve.get_state() for name, curve in self._curves.items()}}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._curves = {trial_id: _Curve.from_state(saved) for trial_id, saved in state["curves"].items()}


class _Curve:
    """The running mean of a trial over time; higher is better, and NaN is worse than every number."""

    def __init__(self) -> None:
        self.best, self.reached = -math.inf, -math.inf
        self._sum = 0.0
        self._times: list[float] = []
        self._means: list[float] = []

    def add(self, time: float, score: float, *, counts: bool) -> None:
        """Take a result; counts: it belongs to the mean."""
        self.reached = time
        self.best = max(self.best, score)  # which stays where the score is NaN
        if counts:
            self._sum += score
            self._times.append(time)
            mean = self._sum / len(self._times)
            self._means.append(-math.inf if math.isnan(mean) else mean)

    def mean_at(self, time: float) -> float | None:
        """The mean of all results up to `time`; None: it has not come so far, or had none."""
        if self.reached < time:
            return None
        before = bisect.bisect_right(self._times, time)
        return self._means[before - 1] if before else None

    def get_state(self) -> dict[str, Any]:
        return {**vars(self), "_times": list(self._times), "_means": list(self._means)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> _Curve:
        curve = cls()
        curve.__dict__.update(state, _times=list(state["_times"]), _means=list(state["_means"]))
        return curve
