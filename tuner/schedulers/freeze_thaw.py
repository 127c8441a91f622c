"""Freeze-thaw: every trial waits, saved, after each epoch until one more of it pays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from trainables.validation import checked_names
from tuner.experiment.reason import ReasonKind
from tuner.schedulers.base import Decision, Directive, Reasoned, T, TrialView, Verdict
from tuner.schedulers.depths import Depths, Standing
from tuner.schedulers.holding import Holding, finder
from tuner.schedulers.progress import ProgressScheduler
from tuner.search.arguments import whole_number

Curve = list[tuple[float, float]]
"""(training_iteration, the best score so far), ascending."""


@checked_names
class FreezeThawScheduler(ProgressScheduler):
    """Buys one epoch at a time, for the trial where it pays most; the others wait, saved, and lose nothing.

    With n trials begun, a trial at depth d goes on while it is among the best `n / (d - grace_period + 2)` of all that
    have been at that depth: as many epochs are spent at one depth as at another. Of those that may go on the deepest
    does, before a new trial begins. A trial ends for good when it would not reach the best score of all by `max_t` even
    if it went on gaining, with each doubling of its depth, what it gained in the last one, and when more than
    `max_paused` wait and it is the one that would have to wait longest. When no new trial comes, the best at each depth
    goes on, and the others end when nothing runs any more.

    It needs checkpoints, and those of all who wait stay, whatever the settings: `max_paused` bounds them. A function
    trainable should save with every report, or look at `get_context().should_checkpoint()`.

    Args:
        max_t: trials end there, in `training_iteration`.
        max_paused: at most so many trials wait.
        grace_period: trials run at least so many iterations. The first ones of a curve say little.
        metric, mode: what is compared; None: the run's.

    Raises:
        SettingError: a number out of its range.

    Example:
        >>> FreezeThawScheduler(max_t=52, metric="loss", mode="min").debug_string()
        'Using FreezeThawScheduler: 0 begun, 0 of at most 100 paused, 0 let go'

    Source: the idea and the name are those of Swersky, Snoek and Adams 2014, "Freeze-Thaw Bayesian Optimization"; whom
    to thaw is decided by rank, as in successive halving (Jamieson and Talwalkar 2016) with a rung at every epoch.
    """

    _remembered = ("_begun", "_let_go", "_best", "_more", "_arrived", "_curves", "_depths", "_trials", "_orders")

    def __init__(
        self,
        max_t: int = 100,
        max_paused: int = 100,
        grace_period: int = 2,
        metric: str | None = None,
        mode: str | None = None,
    ) -> None:
        super().__init__(time_attr="training_iteration", metric=metric, mode=mode)
        self._max_t = whole_number("max_t", max_t, least=1)
        self._max_paused = whole_number("max_paused", max_paused, least=1)
        self._grace = whole_number("grace_period", grace_period, least=1)
        self._begun = self._let_go = 0
        self._best = -math.inf
        self._more = True
        self._arrived = False
        """A trial has come to `max_t`."""
        self._curves: dict[str, Curve] = {}
        self._depths = Depths()
        self._trials = Holding()

    def on_trial_add(self, trial: TrialView) -> None:
        self._more = True
        self._trials.let_run(trial.trial_id)

    def on_trial_start(self, trial: TrialView) -> None:
        self._depths.leave(trial.trial_id)
        self._trials.let_run(trial.trial_id)

    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Verdict | Reasoned:
        name, time, score = trial.trial_id, self._time(result), self._score(result)
        held = name in self._trials.held
        if time is None or score is None:
            return Decision.PAUSE if held else Decision.CONTINUE
        best = self._add(name, time, -math.inf if math.isnan(score) else score)
        if time >= self._max_t:
            self._arrived = True
            return Reasoned(Decision.STOP, self._limit(time, self._max_t))
        if time < self._grace and not held:
            return Decision.CONTINUE
        standing = self._depths.record(time, best)
        rank, of = self._depths.rank(time, standing), self._depths.reached(time)
        if not self._pays(self._curves[name]):
            self._let_go += 1
            return Reasoned(Decision.STOP, self._reason(ReasonKind.WORSE, score, rank=rank, of=of, cut=self._best))
        if not held and rank <= self._places(time):
            return Decision.CONTINUE
        if self._hold(name, time, standing):
            return Reasoned(Decision.PAUSE, self._reason(ReasonKind.WAITS, score, rank=rank, of=of))
        return Reasoned(Decision.STOP, self._reason(ReasonKind.WORSE, score, rank=rank, of=of))

    def _add(self, name: str, time: float, score: float) -> float:
        """Write a score down; returns the trial's best one."""
        if name not in self._curves:
            self._curves[name] = []
            self._begun += 1
        curve = self._curves[name]
        best = max(score, curve[-1][1]) if curve else score
        curve.append((time, best))
        if best > self._best:
            self._best = best
            for other in self._depths.waiting():
                if not self._pays(self._curves[other]):
                    self._end(other)
        return best

    def _places(self, depth: float) -> int:
        """How many of those that were at a depth may go on."""
        least = 1 if self._depths.reached(depth) > 1 or not self._more else 0
        return max(least, int(self._begun / max(1.0, depth - self._grace + 2)))

    def _pays(self, curve: Curve) -> bool:
        """Whether a trial may come to the best score of all, for all that its curve says."""
        time, best = curve[-1]
        if time <= max(2, self._grace) or math.isinf(best):
            return time <= max(2, self._grace) or best >= self._best
        before = next((score for earlier, score in reversed(curve) if earlier <= time // 2), None)
        return before is None or best + (best - before) * math.log2(self._max_t / time) >= self._best

    def _hold(self, name: str, depth: float, standing: Standing) -> bool:
        """Let a trial wait, and end the one that would have to wait longest if there are too many: False: this one."""
        self._depths.wait(name, depth, standing)
        self._trials.hold(name)
        if len(self._depths) <= self._max_paused:
            return True
        *_, last = max((rank * (at - self._grace + 2), at, other) for at, rank, other in self._depths.worst())
        if last != name:
            self._end(last)
            return True
        self._let_go += 1
        self._drop(name)
        return False

    def _end(self, name: str) -> None:
        """One that waits ends for good."""
        self._let_go += 1
        self._drop(name)
        self._orders = [*self._orders, Directive(name, Decision.STOP, self._reason(ReasonKind.WORSE))]

    def _drop(self, name: str) -> None:
        self._depths.leave(name)
        self._trials.drop(name)
        self._curves.pop(name, None)

    def on_trial_remove(self, trial: TrialView) -> None:
        self._drop(trial.trial_id)

    def on_search_end(self) -> None:
        self._more = False

    def on_idle(self) -> None:
        waiting = self._depths.waiting()
        if waiting and not self._arrived:  # there are too few trials for the rule
            self._depths.leave(waiting[0])
            self._trials.let_run(waiting[0])
        else:
            for name in waiting:
                self._end(name)

    def choose_trial_to_run(self, pending: Sequence[T]) -> T | None:
        runnable = self._trials.runnable(pending)
        begun = next((trial for trial in runnable if trial.trial_id in self._curves), None)
        if begun is not None:  # it was interrupted
            return begun
        find = finder(pending)
        chosen = next((trial for name in self._may_go_on() if (trial := find(name)) is not None), None)
        return chosen or next(iter(runnable), None)

    def _may_go_on(self) -> Iterator[str]:
        for depth in self._depths.with_waiting():
            places = self._places(depth)
            for rank, name in self._depths.waiting_at(depth):
                if rank > places:
                    break
                yield name

    def debug_string(self) -> str:
        paused = f"{len(self._depths)} of at most {self._max_paused} paused"
        return f"Using {type(self).__name__}: {self._begun} begun, {paused}, {self._let_go} let go"
