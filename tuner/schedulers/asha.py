"""ASHA: asynchronous successive halving."""

from __future__ import annotations

import bisect
import logging
import math
import random
from typing import Any

from trainables.metrics import nearest_keys, score_of
from tuner.error import SettingError
from tuner.schedulers.base import Decision, TrialScheduler, TrialView

log = logging.getLogger(__name__)


class AsyncHyperBandScheduler(TrialScheduler):
    """Stops a trial that reaches a rung with a result among the worse part of those that were there before.

    Rungs lie at `grace_period * reduction_factor ** k` below `max_t`. The best `1 / reduction_factor` of a rung go on;
    nobody waits for others.

    Args:
        time_attr: what progress is measured by; it must not go down.
        metric, mode: what is compared; None: the run's.
        max_t: trials end there, in units of `time_attr`.
        grace_period: trials run at least so long.
        reduction_factor: one of so many goes on at each rung; above 1.
        brackets: how many ladders of rungs, each starting one rung later; trials are spread over them at random, a
            ladder with one rung less getting a share smaller by e.
        stop_last_trials: False: who has passed all rungs runs on beyond `max_t`.
        seed: of the draw of brackets.

    Raises:
        SettingError: a number out of its range.

    Example:
        >>> ASHAScheduler(metric="loss", mode="min", max_t=81, reduction_factor=3).debug_string()
        'Using ASHA: num_stopped=0; bracket 0: 81: -, 27: -, 9: -, 3: -, 1: -'

    Source: Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning", section 3.2, in the variant that
    stops trials instead of pausing them.
    """

    needs_metric = True

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 100,
        grace_period: float = 1,
        reduction_factor: float = 4,
        brackets: int = 1,
        stop_last_trials: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__(metric=metric, mode=mode)
        if not isinstance(time_attr, str) or not time_attr:
            raise SettingError(f"time_attr={time_attr!r} is not accepted; it is the name of a metric")
        _check("max_t", max_t, max_t > 0, "a number above 0")
        _check("grace_period", grace_period, 0 < grace_period <= max_t, f"a number above 0, at most max_t={max_t!r}")
        _check("reduction_factor", reduction_factor, reduction_factor > 1, "a number above 1")
        _check("brackets", brackets, brackets >= 1 and brackets == int(brackets), "1, 2, ...")
        self._time_attr, self._max_t = time_attr, max_t
        self._stop_last_trials = bool(stop_last_trials)
        self._seed = seed
        self._brackets = [_Bracket(grace_period, max_t, reduction_factor, start) for start in range(int(brackets))]
        most = max(len(bracket.rungs) for bracket in self._brackets)
        self._weights = [math.exp(len(bracket.rungs) - most) for bracket in self._brackets]
        self._bracket_of: dict[str, int] = {}
        self._added = self._stopped = 0
        self._warned: set[str] = set()
        self._reached: dict[str, float] = {}

    def on_trial_add(self, trial: TrialView) -> None:
        self._bracket_of[trial.trial_id] = self._draw_bracket()

    def _draw_bracket(self) -> int:
        """The bracket of the n-th trial: a function of (seed, n)."""
        number, self._added = self._added, self._added + 1
        if len(self._brackets) == 1:
            return 0
        return random.Random(f"{self._seed} {number}").choices(range(len(self._brackets)), self._weights)[0]

    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Decision:
        time, score = self._time(result), self._score(result)
        if time is None or score is None:
            return Decision.CONTINUE
        self._reached[trial.trial_id] = time
        if time >= self._max_t and self._stop_last_trials:
            goes_on = False
        else:
            goes_on = self._bracket(trial).on_result(trial.trial_id, time, score, once=not self._stop_last_trials)
        if goes_on:
            return Decision.CONTINUE
        self._stopped += 1
        return Decision.STOP

    def on_trial_complete(self, trial: TrialView, result: dict[str, Any]) -> None:
        time, score = self._time(result), self._score(result)
        if time is not None and score is not None and time > self._reached.get(trial.trial_id, -math.inf):
            # Only a last result that nobody asked about, because a stopper ended the trial with it, is news here.
            self._bracket(trial).on_result(trial.trial_id, time, score, once=not self._stop_last_trials)
        self.on_trial_remove(trial)

    def on_trial_remove(self, trial: TrialView) -> None:
        self._bracket_of.pop(trial.trial_id, None)
        self._reached.pop(trial.trial_id, None)

    def _bracket(self, trial: TrialView) -> _Bracket:
        index = self._bracket_of.get(trial.trial_id)
        if index is None:  # it had ended and is continued
            rungs = [number for number, bracket in enumerate(self._brackets) if bracket.knows(trial.trial_id)]
            index = rungs[0] if rungs else self._draw_bracket()
            self._bracket_of[trial.trial_id] = index
        return self._brackets[index]

    def _time(self, result: dict[str, Any]) -> float | None:
        time = score_of(result, self._time_attr)
        if time is None and result:
            self._warn(self._time_attr, result)
        return None if time is None or math.isnan(time) else time

    def _score(self, result: dict[str, Any]) -> float | None:
        """The metric, turned so that higher is better; NaN stays."""
        if self._metric is None:
            raise SettingError(f"{type(self).__name__} needs a metric: give metric= and mode= to it or to the run")
        score = score_of(result, self._metric)
        if score is None:
            return None
        return -score if self._mode == "min" else score

    def _warn(self, name: str, result: dict[str, Any]) -> None:
        if name not in self._warned:
            self._warned.add(name)
            near = ", ".join(nearest_keys(result, name))
            log.warning(
                "%s: a result has no number %r, so it decides nothing; it has: %s", type(self).__name__, name, near
            )

    def debug_string(self) -> str:
        ladders = "; ".join(f"bracket {number}: {bracket}" for number, bracket in enumerate(self._brackets))
        return f"Using ASHA: num_stopped={self._stopped}; {ladders}"

    def get_state(self) -> dict[str, Any]:
        return {
            "added": self._added,
            "stopped": self._stopped,
            "bracket_of": dict(self._bracket_of),
            "reached": dict(self._reached),
            "recorded": [[dict(rung.recorded) for rung in bracket.rungs] for bracket in self._brackets],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._added, self._stopped = state["added"], state["stopped"]
        self._bracket_of, self._reached = dict(state["bracket_of"]), dict(state["reached"])
        for bracket, ladder in zip(self._brackets, state["recorded"], strict=False):
            for rung, recorded in zip(bracket.rungs, ladder, strict=False):
                rung.recorded = dict(recorded)
                rung.ordered = sorted(score for score in recorded.values() if not math.isnan(score))


ASHAScheduler = AsyncHyperBandScheduler


def _check(name: str, value: Any, fits: bool, accepted: str) -> None:
    if isinstance(value, bool) or not fits:
        raise SettingError(f"{name}={value!r} is not accepted; accepted: {accepted}")


class _Rung:
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

    def cutoff(self, reduction_factor: float) -> float | None:
        """The 1 - 1/reduction_factor percentile (linear, NaN left out); None: there is no number yet."""
        return percentile(self.ordered, (1 - 1 / reduction_factor) * 100) if self.ordered else None


class _Bracket:
    """One ladder of rungs, the highest first."""

    def __init__(self, grace_period: float, max_t: float, reduction_factor: float, start: int) -> None:
        self._factor = reduction_factor
        self.rungs: list[_Rung] = []
        milestone = grace_period * reduction_factor**start
        while milestone <= max_t * (1 + 1e-12):  # a rung at max_t must not be lost to rounding
            self.rungs.insert(0, _Rung(milestone))
            start += 1
            milestone = grace_period * reduction_factor**start

    def knows(self, trial_id: str) -> bool:
        return any(trial_id in rung.recorded for rung in self.rungs)

    def on_result(self, trial_id: str, time: float, score: float, *, once: bool) -> bool:
        """Record a result at the highest rung that it reaches and that the trial was not at; True: it goes on."""
        for rung in self.rungs:
            if time < rung.milestone:
                continue
            if trial_id in rung.recorded:
                if once:  # it was decided there that the trial goes on
                    return True
                continue
            cutoff = rung.cutoff(self._factor)
            rung.record(trial_id, score)
            return cutoff is None or score >= cutoff  # NaN is not: it is worse than every number
        return True

    def __str__(self) -> str:
        texts = []
        for rung in self.rungs:
            cutoff = rung.cutoff(self._factor)
            texts.append(f"{rung.milestone:g}: {'-' if cutoff is None else f'{cutoff:.4g}'}")
        return ", ".join(texts)


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
