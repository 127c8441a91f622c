"""ASHA: asynchronous successive halving."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any, cast

from trainables.automatic import TRAINING_ITERATION
from trainables.validation import checked_names, flag
from tuner.error import require
from tuner.experiment.reason import Reason, ReasonKind
from tuner.schedulers.base import Decision, Directive, Reasoned, T, TrialView, Verdict
from tuner.schedulers.holding import Holding
from tuner.schedulers.objectives import Objectives, Point
from tuner.schedulers.pareto_rungs import ParetoPromotionRung, ParetoStoppingRung
from tuner.schedulers.progress import ProgressScheduler
from tuner.schedulers.rungs import (
    Cut,
    PromotionBracket,
    PromotionRung,
    RungThatPromotes,
    RungThatStops,
    StoppingBracket,
    StoppingRung,
    milestones,
)
from tuner.search.arguments import check_number, whole_number
from tuner.search.searcher import Metric

Score = float | Point
"""What is compared: one number, higher is better, or a point of several objectives."""


@checked_names
class AsyncHyperBandScheduler(ProgressScheduler):
    """Lets the better part of those that reach a rung go on; nobody waits until a rung is full.

    Rungs lie at `grace_period * reduction_factor ** k` below `max_t`. "stopping": a trial ends at a rung where its
    result is among the worse part of those that were there before. "promotion": a trial pauses at every rung, and goes
    on when it is one of the best `1 / reduction_factor` of all that have been there; before one does that, no new
    trial begins. Who waits when nothing runs and no new trial comes has ended, but where a rung has promoted nobody
    its best goes on, so that a run with few trials reaches `max_t` too.

    With a list of metrics trials are compared by all of them: who is beaten by fewer fronts of others goes on first,
    and within a front who is farthest from those chosen before, so that what goes on spans the trade-off. A result with
    NaN or a worst infinity in one of them is behind all others.

    Args:
        time_attr: what progress is measured by; it must not go down.
        metric, mode: what is compared; None: the run's. Lists of both for several objectives.
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
    algorithm 2 (2018 as "Massively Parallel Hyperparameter Tuning"), "stopping" the variant that never pauses. Several
    objectives: Schmucker et al. 2021, "Multi-objective Asynchronous Successive Halving".
    """

    several_metrics = True
    _built_for_several = False  # nor has a scheduler that an older version stored this
    _begun: dict[str, float] = {}  # never changed in place: a scheduler that an older version stored has none
    """Forks -> where they began: the rungs up to there are another trial's."""
    _started: frozenset[str] = frozenset()  # nor has it these
    """Those that wait for nothing: they run, or were interrupted."""
    _remembered = ("_added", "_stopped", "_bracket_of", "_reached", "_begun", "_started", "_trials", "_orders")

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: Metric = None,
        mode: Metric = None,
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
        self._factor, self._type = reduction_factor, type
        self._ladders = [milestones(grace_period, max_t, reduction_factor, start) for start in range(brackets)]
        most = max(len(ladder) for ladder in self._ladders)
        self._weights = [math.exp(len(ladder) - most) for ladder in self._ladders]
        self._build()
        self._bracket_of: dict[str, int] = {}
        self._added = self._stopped = 0
        self._reached: dict[str, float] = {}
        self._started = frozenset()
        self._trials = Holding()

    def _build(self) -> None:
        """The brackets, for one metric or several."""
        factor, once = self._factor, not self._stop_last_trials
        self._built_for_several = several = self._objectives is not None
        self._stopping: list[StoppingBracket[Any]] = []
        self._promotion: list[PromotionBracket[Any]] = []
        if self._type == "promotion":
            promotes: type[RungThatPromotes[Any]] = ParetoPromotionRung if several else PromotionRung
            self._promotion = [PromotionBracket(ladder, factor, promotes) for ladder in self._ladders]
        else:
            stops: type[RungThatStops[Any]] = ParetoStoppingRung if several else StoppingRung
            self._stopping = [StoppingBracket(ladder, factor, stops, once=once) for ladder in self._ladders]

    def set_search_properties(self, metric: Metric, mode: Metric, **spec: Any) -> bool:
        fits = super().set_search_properties(metric, mode, **spec)
        if self._built_for_several != (self._objectives is not None):
            self._build()
        return fits

    @property
    def _objectives(self) -> Objectives | None:
        """What is compared where that is more than one number."""
        one = self._metric is None or isinstance(self._metric, str)
        return None if one else Objectives(self._metric or (), self._mode or ())

    @property
    def _brackets(self) -> Sequence[StoppingBracket[Any] | PromotionBracket[Any]]:
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
            self._started = self._started | {trial.trial_id}

    def _draw_bracket(self) -> int:
        """The bracket of the n-th trial: a function of (seed, n)."""
        number, self._added = self._added, self._added + 1
        if len(self._weights) == 1:
            return 0
        return random.Random(f"{self._seed} {number}").choices(range(len(self._weights)), self._weights)[0]

    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Verdict | Reasoned:
        time, score = self._time(result), self._seen(result)
        held = trial.trial_id in self._trials.held
        if time is None or score is None:
            return Decision.PAUSE if held else Decision.CONTINUE
        self._reached[trial.trial_id] = time
        if time >= self._max_t and self._stop_last_trials:
            self._stopped += 1
            return Reasoned(Decision.STOP, self._limit(time, self._max_t))
        if held:  # it runs on to its next save
            return Reasoned(Decision.PAUSE, self._why(ReasonKind.WAITS, score))
        return self._at_rung(trial, time, score)

    def decides_from(self, trial: TrialView, iteration: int) -> float:
        """The next rung, or `max_t`."""
        extended = type(self).on_trial_result is not AsyncHyperBandScheduler.on_trial_result
        bracket = self._bracket_of.get(trial.trial_id)
        held = trial.trial_id in self._trials.held
        if extended or held or bracket is None or self.time_attr != TRAINING_ITERATION:
            return super().decides_from(trial, iteration)
        ends = [self._max_t] if self._stop_last_trials else []
        rungs = [rung.milestone for rung in self._brackets[bracket].rungs]
        return min((math.ceil(end) for end in (*rungs, *ends) if end > iteration), default=math.inf)

    def _at_rung(self, trial: TrialView, time: float, score: Score) -> Verdict | Reasoned:
        index, begun = self._bracket(trial), self._begun.get(trial.trial_id, -math.inf)
        if self._stopping:
            cut = self._stopping[index].on_result(trial.trial_id, time, score, begun)
            if cut is None:
                return Decision.CONTINUE
            self._stopped += 1
            return Reasoned(Decision.STOP, self._why(ReasonKind.WORSE, score, cut))
        promoted = self._promotion[index].on_result(trial.trial_id, time, score, begun)
        if promoted is None:
            return Decision.CONTINUE
        self._trials.hold(trial.trial_id)
        for trial_id in promoted:
            self._trials.let_run(trial_id)
        if trial.trial_id in promoted:
            return Decision.CONTINUE
        self._started = self._started - {trial.trial_id}
        return Reasoned(Decision.PAUSE, self._why(ReasonKind.WAITS, score))

    def _seen(self, result: dict[str, Any]) -> Score | None:
        """What is compared of a result."""
        objectives = self._objectives
        return self._score(result) if objectives is None else objectives.point(result)

    def _why(self, kind: ReasonKind, score: Score | None, cut: Cut | None = None) -> Reason:
        rank, of, needed, front = (None,) * 4 if cut is None else (cut.rank, cut.of, cut.needed, cut.front)
        if (objectives := self._objectives) is None:
            return self._reason(kind, cast(float | None, score), rank=rank, of=of, cut=needed)
        values = None if score is None else dict[str, float | None](objectives.values(cast(Point, score)))
        return Reason(kind, type(self).__name__, values=values, rank=rank, of=of, front=front)

    def on_trial_complete(self, trial: TrialView, result: dict[str, Any]) -> None:
        time, score = self._time(result), self._seen(result)
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
        self._started = self._started - {trial_id}
        for bracket in self._promotion:
            bracket.give_up(trial_id)

    def choose_trial_to_run(self, pending: Sequence[T]) -> T | None:
        if self._stopping:
            return pending[0] if pending else None
        runnable = self._trials.runnable(pending)
        return max(runnable, key=self._urgency, default=None)

    def _urgency(self, trial: TrialView) -> tuple[bool, float]:
        """Who was interrupted runs first, as if it had not been; of those who are promoted, the highest."""
        return trial.trial_id in self._started, self._height(trial.trial_id)

    def _height(self, trial_id: str) -> float:
        """The highest rung that it was at."""
        index = self._bracket_of.get(trial_id)
        return 0.0 if index is None else self._promotion[index].height_of(trial_id)

    def on_idle(self) -> None:
        promoted = [trial_id for bracket in self._promotion for trial_id in bracket.promote_one()]
        for trial_id in promoted:
            self._trials.let_run(trial_id)
        if not promoted:
            worse = self._why(ReasonKind.WORSE, None)
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
        super().set_state({"begun": {}, "started": frozenset(), **state})  # an older version's has none
        for bracket, ladder in zip(self._brackets, state["recorded"], strict=False):
            bracket.set_state(ladder)


ASHAScheduler = AsyncHyperBandScheduler
