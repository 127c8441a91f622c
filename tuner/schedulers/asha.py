"""ASHA: asynchronous successive halving."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from trainables.validation import checked_names, flag
from tuner.error import require
from tuner.experiment.reason import ReasonKind
from tuner.schedulers.base import Decision, Directive, Reasoned, T, TrialView, Verdict
from tuner.schedulers.holding import Holding
from tuner.schedulers.progress import ProgressScheduler
from tuner.schedulers.rungs import PromotionBracket, StoppingBracket, milestones
from tuner.search.arguments import check_number, whole_number


@checked_names
class AsyncHyperBandScheduler(ProgressScheduler):
    """Lets the better part of those that reach a rung go on; nobody waits until a rung is full.

    Rungs lie at `grace_period * reduction_factor ** k` below `max_t`. "stopping": a trial ends at a rung where its
    result is among the worse part of those that were there before. "promotion": a trial pauses at every rung, and goes
    on when it is one of the best `1 / reduction_factor` of all that have been there; before one does that, no new
    trial begins. Who waits when nothing runs and no new trial comes has ended, but where a rung has promoted nobody
    its best goes on, so that a run with few trials reaches `max_t` too.

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
        type: "stopping" or "promotion". The second one needs checkpoints, keeps those of all who wait, and spends
            nothing on a trial before it has proved to be good.

    Raises:
        SettingError: a number out of its range.

    Example:
        >>> ASHAScheduler(metric="loss", mode="min", max_t=81, reduction_factor=3).debug_string()
        'Using ASHA: num_stopped=0; bracket 0: 81: -, 27: -, 9: -, 3: -, 1: -'

    Source: Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning", section 3.2; "promotion" is its
    algorithm 2 (2018 as "Massively Parallel Hyperparameter Tuning"), "stopping" the variant that never pauses.
    """

    _begun: dict[str, float] = {}  # never changed in place: a scheduler that an older version stored has none
    """Forks -> where they began: the rungs up to there are another trial's."""
    _remembered = ("_added", "_stopped", "_bracket_of", "_reached", "_begun", "_trials", "_orders")

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
        type: str = "stopping",
    ) -> None:
        super().__init__(time_attr=time_attr, metric=metric, mode=mode)
        check_number("max_t", max_t, lambda number: 0 < number < math.inf, "a finite number above 0")
        within = f"a number above 0, at most max_t={max_t!r}"
        check_number("grace_period", grace_period, lambda number: 0 < number <= max_t, within)
        check_number("reduction_factor", reduction_factor, lambda number: 1 < number < math.inf, "a number above 1")
        self._given_brackets = whole_number("brackets", brackets, least=1)
        require(type in ("stopping", "promotion"), "type", type, "accepted: 'stopping', 'promotion'")
        self._max_t, self._stop_last_trials, self._seed = max_t, flag("stop_last_trials", stop_last_trials), seed
        ladders = [milestones(grace_period, max_t, reduction_factor, start) for start in range(brackets)]
        self._stopping = [StoppingBracket(ladder, reduction_factor, once=not stop_last_trials) for ladder in ladders]
        self._promotion: list[PromotionBracket] = []
        if type == "promotion":
            self._stopping, self._promotion = [], [PromotionBracket(ladder, reduction_factor) for ladder in ladders]
        most = max(len(ladder) for ladder in ladders)
        self._weights = [math.exp(len(ladder) - most) for ladder in ladders]
        self._bracket_of: dict[str, int] = {}
        self._added = self._stopped = 0
        self._reached: dict[str, float] = {}
        self._trials = Holding()

    @property
    def _brackets(self) -> Sequence[StoppingBracket | PromotionBracket]:
        return self._promotion or self._stopping

    def on_trial_add(self, trial: TrialView) -> None:
        self._bracket_of[trial.trial_id] = self._draw_bracket()
        self._trials.let_run(trial.trial_id)

    def on_trial_fork(self, trial: TrialView, result: dict[str, Any]) -> None:
        time = self._time(result)
        if time is not None:
            self._begun = {**self._begun, trial.trial_id: time}

    def on_trial_start(self, trial: TrialView) -> None:
        if trial.trial_id not in self._trials.held:
            self._trials.let_run(trial.trial_id)

    def _draw_bracket(self) -> int:
        """The bracket of the n-th trial: a function of (seed, n)."""
        number, self._added = self._added, self._added + 1
        if len(self._weights) == 1:
            return 0
        return random.Random(f"{self._seed} {number}").choices(range(len(self._weights)), self._weights)[0]

    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Verdict | Reasoned:
        time, score = self._time(result), self._score(result)
        held = trial.trial_id in self._trials.held
        if time is None or score is None:
            return Decision.PAUSE if held else Decision.CONTINUE
        self._reached[trial.trial_id] = time
        if time >= self._max_t and self._stop_last_trials:
            self._stopped += 1
            return Reasoned(Decision.STOP, self._limit(time, self._max_t))
        if held:  # it runs on to its next save
            return Reasoned(Decision.PAUSE, self._reason(ReasonKind.WAITS, score))
        return self._at_rung(trial, time, score)

    def _at_rung(self, trial: TrialView, time: float, score: float) -> Verdict | Reasoned:
        index, begun = self._bracket(trial), self._begun.get(trial.trial_id, -math.inf)
        if self._stopping:
            cut = self._stopping[index].on_result(trial.trial_id, time, score, begun)
            if cut is None:
                return Decision.CONTINUE
            self._stopped += 1
            worse = self._reason(ReasonKind.WORSE, score, rank=cut.rank, of=cut.of, cut=cut.needed)
            return Reasoned(Decision.STOP, worse)
        promoted = self._promotion[index].on_result(trial.trial_id, time, score, begun)
        if promoted is None:
            return Decision.CONTINUE
        self._trials.hold(trial.trial_id)
        for trial_id in promoted:
            self._trials.let_run(trial_id)
        if trial.trial_id in promoted:
            return Decision.CONTINUE
        return Reasoned(Decision.PAUSE, self._reason(ReasonKind.WAITS, score))

    def on_trial_complete(self, trial: TrialView, result: dict[str, Any]) -> None:
        time, score = self._time(result), self._score(result)
        if time is not None and score is not None and time > self._reached.get(trial.trial_id, -math.inf):
            # Only a last result that nobody asked about, because a stopper ended the trial with it, is news here.
            stopped = self._stopped
            self._at_rung(trial, time, score)
            self._stopped = stopped  # not by this scheduler
        self.on_trial_remove(trial)

    def on_trial_error(self, trial: TrialView) -> None:
        self._give_up(trial.trial_id)

    def on_trial_remove(self, trial: TrialView) -> None:
        self._bracket_of.pop(trial.trial_id, None)
        self._begun = {trial_id: time for trial_id, time in self._begun.items() if trial_id != trial.trial_id}
        self._reached.pop(trial.trial_id, None)
        self._give_up(trial.trial_id)

    def _give_up(self, trial_id: str) -> None:
        self._trials.drop(trial_id)
        for bracket in self._promotion:
            bracket.give_up(trial_id)

    def choose_trial_to_run(self, pending: Sequence[T]) -> T | None:
        if self._stopping:
            return pending[0] if pending else None
        runnable = self._trials.runnable(pending)
        return max(runnable, key=lambda trial: self._height(trial.trial_id), default=None)

    def _height(self, trial_id: str) -> float:
        """How far it has come: of those who are promoted, the highest goes first."""
        index = self._bracket_of.get(trial_id)
        return 0.0 if index is None else self._promotion[index].height_of(trial_id)

    def on_idle(self) -> None:
        promoted = [trial_id for bracket in self._promotion for trial_id in bracket.promote_one()]
        for trial_id in promoted:
            self._trials.let_run(trial_id)
        if not promoted:
            worse = self._reason(ReasonKind.WORSE)
            ends = [Directive(trial_id, Decision.STOP, worse) for trial_id in self._trials.held]
            self._orders = [*self._orders, *ends]
            self._stopped += len(self._trials.held)

    def _bracket(self, trial: TrialView) -> int:
        index = self._bracket_of.get(trial.trial_id)
        if index is None:  # it had ended and is continued
            known = [number for number, bracket in enumerate(self._brackets) if bracket.knows(trial.trial_id)]
            index = known[0] if known else self._draw_bracket()
            self._bracket_of[trial.trial_id] = index
        return index

    def debug_string(self) -> str:
        ladders = "; ".join(f"bracket {number}: {bracket}" for number, bracket in enumerate(self._brackets))
        return f"Using ASHA: num_stopped={self._stopped}; {ladders}"

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "recorded": [bracket.get_state() for bracket in self._brackets]}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state({"begun": {}, **state})  # an older version's has none
        for bracket, ladder in zip(self._brackets, state["recorded"], strict=False):
            bracket.set_state(ladder)


ASHAScheduler = AsyncHyperBandScheduler
