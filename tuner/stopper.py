"""Stoppers: when a trial, or the whole experiment, has done enough."""

from __future__ import annotations

import datetime
import inspect
import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainables.metrics import MISSING, as_score, lookup, nearest_keys, score_of
from tuner.clock import Clock, SystemClock
from tuner.error import SettingError
from tuner.search.sample import whole_number
from tuner.search.state import picklable_state

log = logging.getLogger(__name__)


class Stopper:
    """Says after each result whether a trial, or everything, ends.

    Obligations of a subclass: it does no I/O and keeps no trial; each (trial, training_iteration) is told at most once;
    `get_state` / `set_state` carry what later answers depend on, but not the arguments of the constructor.
    """

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """True: this trial ends now, after this result."""
        raise NotImplementedError(f"{type(self).__name__} does not define __call__(trial_id, result)")

    def stop_all(self) -> bool:
        """True: every trial ends at its next result, and no other begins."""
        raise NotImplementedError(f"{type(self).__name__} does not define stop_all()")

    def get_state(self) -> dict[str, Any]:
        """Everything that later answers depend on; what cannot be pickled is left out."""
        return picklable_state(self)

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from what `get_state` returned."""
        self.__dict__.update(state)


@dataclass(frozen=True)
class AtMost:
    """A stop criterion that is met by a value of at most `limit`."""

    limit: float


def at_most(limit: float) -> AtMost:
    """For `stop={"loss": at_most(0.1)}`: stop once the loss is 0.1 or lower. A plain number means "at least".

    >>> DictStopper({"loss": at_most(0.1)})("trial", {"loss": 0.05})
    True
    """
    if as_score(limit) is None or math.isnan(limit):
        raise SettingError(f"at_most({limit!r}) is not accepted; it is a number")
    return AtMost(float(limit))


class DictStopper(Stopper):
    """Ends a trial whose metric reaches a value: `{"training_iteration": 10}` ends it after exactly ten results.

    Args:
        criteria: metric -> number (reached from below), True, or `at_most(number)`. One that is met is enough.
    """

    def __init__(self, criteria: Mapping[str, Any]) -> None:
        for name, limit in criteria.items():
            number = isinstance(limit, (AtMost, bool)) or as_score(limit) is not None
            if not isinstance(name, str) or not number or limit != limit:
                raise SettingError(
                    f"stop={{{name!r}: {limit!r}}} is not accepted; a metric's name has a number (stop once the metric "
                    "is that or higher) or tune.at_most(number)"
                )
        self._criteria = dict(criteria)
        self._unseen = set(criteria)

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        if self._unseen:
            self._look_for(result)
        return any(_reached(lookup(result, name), limit) for name, limit in self._criteria.items())

    def _look_for(self, result: dict[str, Any]) -> None:
        """Warn once of a criterion that the first result has no metric for: it may be misspelled."""
        for name in self._unseen:
            if lookup(result, name) is MISSING and name != "done":
                near = ", ".join(nearest_keys(result, name))
                log.warning(
                    "stop: the first result has no metric %r, which decides nothing until it comes; there are: %s",
                    name,
                    near,
                )
        self._unseen = set()

    def stop_all(self) -> bool:
        return False

    def get_state(self) -> dict[str, Any]:
        return {"unseen": sorted(self._unseen)}

    def set_state(self, state: dict[str, Any]) -> None:
        self._unseen = set(state["unseen"]) & set(self._criteria)


def _reached(value: Any, limit: Any) -> bool:
    if isinstance(limit, bool):
        return value is not MISSING and bool(value is not None and value == limit)
    number = float(value) if isinstance(value, bool) else as_score(value)
    if number is None:
        return False
    return number <= limit.limit if isinstance(limit, AtMost) else number >= limit


class FunctionStopper(Stopper):
    """Ends a trial when a function `(trial_id, result)` says so."""

    def __init__(self, function: Callable[[str, dict[str, Any]], bool]) -> None:
        if not self.is_valid_function(function):
            raise SettingError(
                f"stop={function!r} is not accepted; a function for it takes (trial_id, result) and returns a bool"
            )
        self._function = function

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return bool(self._function(trial_id, result))

    def stop_all(self) -> bool:
        return False

    def get_state(self) -> dict[str, Any]:
        return {}

    @classmethod
    def is_valid_function(cls, function: Any) -> bool:
        """True if it can be called with (trial_id, result)."""
        if not callable(function) or isinstance(function, (Stopper, type)):
            return False
        try:
            inspect.signature(function).bind("trial", {})
        except ValueError:
            return True  # a builtin without a signature: it will say so itself
        except TypeError:
            return False
        return True


class CombinedStopper(Stopper):
    """Ends a trial, or all, when one of several stoppers does.

    >>> CombinedStopper(MaximumIterationStopper(5), TrialPlateauStopper("loss")).stop_all()
    False
    """

    def __init__(self, *stoppers: Stopper) -> None:
        for stopper in stoppers:
            if not isinstance(stopper, Stopper):
                raise SettingError(f"CombinedStopper: {stopper!r} is not accepted; all are Stoppers")
        self._stoppers = stoppers

    @property
    def stoppers(self) -> tuple[Stopper, ...]:
        return self._stoppers

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        # All are asked, also after a yes: each counts for itself.
        return True in [stopper(trial_id, result) for stopper in self._stoppers]

    def stop_all(self) -> bool:
        return True in [stopper.stop_all() for stopper in self._stoppers]

    def get_state(self) -> dict[str, Any]:
        return {"stoppers": [stopper.get_state() for stopper in self._stoppers]}

    def set_state(self, state: dict[str, Any]) -> None:
        for stopper, inner in zip(self._stoppers, state["stoppers"], strict=False):
            stopper.set_state(inner)


class MaximumIterationStopper(Stopper):
    """Ends each trial after `max_iter` results."""

    def __init__(self, max_iter: int) -> None:
        self._max_iter = whole_number("max_iter", max_iter, least=1)
        self._count: dict[str, int] = {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self._count[trial_id] = count = self._count.get(trial_id, 0) + 1
        return count >= self._max_iter

    def stop_all(self) -> bool:
        return False

    def get_state(self) -> dict[str, Any]:
        return {"count": dict(self._count)}

    def set_state(self, state: dict[str, Any]) -> None:
        self._count = dict(state["count"])


class TrialPlateauStopper(Stopper):
    """Ends a trial whose metric no longer moves.

    Args:
        metric: what is looked at; results without it are not counted among the `num_results`.
        std: it does not move if the standard deviation of its last results is below this.
        num_results: of how many results.
        grace_period: results before which a trial never ends.
        metric_threshold: end only what is at least that good; None: all.
        mode: "min" or "max", needed with a threshold.
    """

    def __init__(
        self,
        metric: str,
        std: float = 0.01,
        num_results: int = 4,
        grace_period: int = 4,
        metric_threshold: float | None = None,
        mode: str | None = None,
    ) -> None:
        if mode not in (None, "min", "max") or (metric_threshold is not None and mode is None):
            raise SettingError(f"mode={mode!r} is not accepted; with a metric_threshold it is 'min' or 'max'")
        self._num_results = whole_number("num_results", num_results, least=1)
        self._metric, self._std = metric, std
        self._grace_period, self._threshold, self._mode = grace_period, metric_threshold, mode
        self._count: dict[str, int] = {}
        self._window: dict[str, deque[float]] = {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self._count[trial_id] = count = self._count.get(trial_id, 0) + 1
        score = score_of(result, self._metric)
        if score is None:
            return False
        window = self._window.setdefault(trial_id, deque(maxlen=self._num_results))
        window.append(score)
        if count < self._grace_period or len(window) < self._num_results:
            return False
        if self._threshold is not None:
            good = score <= self._threshold if self._mode == "min" else score >= self._threshold
            if not good:
                return False
        return deviation(window) < self._std

    def stop_all(self) -> bool:
        return False

    def get_state(self) -> dict[str, Any]:
        return {"count": dict(self._count), "window": {name: list(window) for name, window in self._window.items()}}

    def set_state(self, state: dict[str, Any]) -> None:
        self._count = dict(state["count"])
        self._window = {name: deque(window, maxlen=self._num_results) for name, window in state["window"].items()}


class ExperimentPlateauStopper(Stopper):
    """Ends the experiment when the best results of all trials no longer move.

    Args:
        metric: what is looked at.
        std: they do not move if the standard deviation of the best ones is at most this; above 0.
        top: how many best ones, from 2.
        mode: "min" or "max".
        patience: results that may still come after that.
    """

    def __init__(self, metric: str, std: float = 0.001, top: int = 10, mode: str = "min", patience: int = 0) -> None:
        if mode not in ("min", "max"):
            raise SettingError(f"mode={mode!r} is not accepted; accepted are 'min' and 'max'")
        if as_score(std) is None or not std > 0:
            raise SettingError(f"std={std!r} is not accepted; it is a number above 0")
        self._top = whole_number("top", top, least=2)
        self._patience = whole_number("patience", patience, least=0)
        self._metric, self._std, self._mode = metric, std, mode
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

    def get_state(self) -> dict[str, Any]:
        return {"best": list(self._best), "still": self._still}

    def set_state(self, state: dict[str, Any]) -> None:
        self._best, self._still = list(state["best"]), state["still"]


class TimeoutStopper(Stopper):
    """Ends the experiment after some time, counted from the first look; after a resume what was left goes on.

    Args:
        timeout: seconds, or a `datetime.timedelta`.
        clock: where time comes from; None: the run's.
    """

    def __init__(self, timeout: float | datetime.timedelta, clock: Clock | None = None) -> None:
        seconds = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else as_score(timeout)
        if seconds is None or not seconds >= 0:
            raise SettingError(
                f"timeout={timeout!r} is not accepted; it is a number of seconds or a datetime.timedelta"
            )
        self._left = seconds
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

    def get_state(self) -> dict[str, Any]:
        return {"left": self._left}

    def set_state(self, state: dict[str, Any]) -> None:
        self._left, self._last = state["left"], None


def deviation(values: Sequence[float] | deque[float]) -> float:
    """The standard deviation of all values (of them, not of what they are a sample of); NaN and infinities give NaN."""
    mean = sum(values) / len(values)
    if not math.isfinite(mean):
        return math.nan
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))


def as_stopper(stop: Any, *, clock: Clock | None = None) -> Stopper | None:
    """What `stop=` means.

    Args:
        stop: None, a dict of criteria, a `Stopper`, a function `(trial_id, result) -> bool`, or a list of them.
        clock: for stoppers that look at the time.

    Raises:
        SettingError: anything else; the message says what is accepted.
    """
    if stop is None or (isinstance(stop, Mapping) and not stop):
        return None
    if isinstance(stop, (list, tuple)):
        parts = [made for made in (as_stopper(one, clock=clock) for one in stop) if made is not None]
        return CombinedStopper(*parts) if parts else None
    if isinstance(stop, Stopper):
        _give_clock(stop, clock)
        return stop
    if isinstance(stop, Mapping):
        return DictStopper(stop)
    if isinstance(stop, type) and issubclass(stop, Stopper):
        raise SettingError(f"stop={stop!r} is a class; create an instance of it: stop={stop.__name__}(...)")
    if FunctionStopper.is_valid_function(stop):
        return FunctionStopper(stop)
    raise SettingError(
        f"stop={stop!r} is not accepted; accepted are a dict like "
        "{'training_iteration': 10, 'loss': tune.at_most(0.1)}, a Stopper,"
        " a function (trial_id, result) -> bool, and a list of them"
    )


def _give_clock(stopper: Stopper, clock: Clock | None) -> None:
    if clock is None:
        return
    if isinstance(stopper, CombinedStopper):
        for inner in stopper.stoppers:
            _give_clock(inner, clock)
    elif isinstance(stopper, TimeoutStopper):
        stopper.use_clock(clock)
