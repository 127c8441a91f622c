"""HyperBand: brackets of trials that are halved together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from trainables.validation import checked_names, flag
from tuner.experiment.reason import Reason, ReasonKind
from tuner.schedulers.base import Decision, Directive, Reasoned, T, TrialView, Verdict
from tuner.schedulers.bracket import Bracket
from tuner.schedulers.holding import Holding
from tuner.schedulers.progress import ProgressScheduler
from tuner.search.arguments import check_number


@checked_names
class HyperBandScheduler(ProgressScheduler):
    """Trains brackets of trials to a common rung, and lets the best `1 / reduction_factor` of each go on to the next.

    Whoever reaches the rung first pauses until the others of its bracket are there. New trials fill one bracket after
    the other; the brackets of a band begin with few trials that train long, and end with many that start short. A
    bracket waits until it is full, or no more trials come. Of equal results that of the trial that came later stays.
    A trial that ends by itself, or fails, leaves its bracket: the others go on without it. So does one that a user lets
    wait, when nobody else could go on; told to go, it joins another one.

    Args:
        time_attr: what progress is measured by; it must not go down.
        metric, mode: what is compared; None: the run's.
        max_t: trials end there, in units of `time_attr`.
        reduction_factor: one of so many goes on at each rung; above 1.
        stop_last_trials: False: the last ones of a bracket run on beyond `max_t`.

    Raises:
        SettingError: a number out of its range.

    Example:
        >>> [HyperBandScheduler(max_t=81, reduction_factor=3).bracket(s) for s in range(3)]
        [(5, [81]), (8, [27, 81]), (15, [9, 27, 81])]

    Source: Li et al. 2016, "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization", algorithm 1;
    sizes and rungs of the brackets are rounded as Ray Tune does.
    """

    _largest_first = False
    _remembered = ("_made", "_open", "_bracket_of", "_trials", "_ended", "_orders", "_more", "_stopped")

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 81,
        reduction_factor: float = 3,
        stop_last_trials: bool = True,
    ) -> None:
        super().__init__(time_attr=time_attr, metric=metric, mode=mode)
        check_number("max_t", max_t, lambda number: 1 <= number < math.inf, "a finite number, 1 or above")
        check_number("reduction_factor", reduction_factor, lambda number: 1 < number < math.inf, "a number above 1")
        self._max_t, self._factor = max_t, reduction_factor
        self._stop_last_trials = flag("stop_last_trials", stop_last_trials)
        self._size_of_band = round(math.log(max_t) / math.log(reduction_factor)) + 1
        self._brackets: dict[int, Bracket] = {}
        """Those that are not done with, by number."""
        self._made = 0
        """Brackets so far, those that were left out too: which one of which band comes next."""
        self._open: int | None = None
        """The one that new trials join."""
        self._bracket_of: dict[str, int] = {}
        self._trials = Holding()
        self._ended: dict[str, None] = {}
        """Ordered to end, and not known to have done so."""
        self._more = True
        self._stopped = 0

    def bracket(self, s: int) -> tuple[int, list[int]]:
        """How many trials bracket `s` of a band begins with, and the rungs at which it is halved, last its end."""
        first = int(self._max_t * self._factor**-s)
        rungs = [first]
        for _ in range(s):
            rungs.append(int(min(rungs[-1] * self._factor, self._max_t)))
        return math.ceil(self._size_of_band / (s + 1) * self._factor**s), rungs

    @property
    def milestones(self) -> list[int]:
        """All rungs of all brackets, ascending: what a searcher that models results per budget asks for."""
        ladders = [self.bracket(s)[1] for s in range(self._size_of_band)]
        return sorted({rung for ladder in ladders if ladder[0] > 0 for rung in ladder})

    def on_trial_add(self, trial: TrialView) -> None:
        self._more = True
        self._join(trial.trial_id)

    def on_trial_fork(self, trial: TrialView, result: dict[str, Any]) -> None:
        time = self._time(result)
        if time is not None:
            self._brackets[self._bracket_of[trial.trial_id]].begin_at(trial.trial_id, time)

    def on_trial_start(self, trial: TrialView) -> None:
        known = trial.trial_id in self._bracket_of or trial.trial_id in self._ended
        if not known:  # it had ended and is continued
            self._join(trial.trial_id)

    def _join(self, trial_id: str) -> int:
        bracket = self._brackets.get(-1 if self._open is None else self._open)
        if bracket is None or bracket.full:
            bracket = self._next_bracket()
        bracket.add(trial_id)
        self._bracket_of[trial_id] = bracket.number
        self._trials.let_run(trial_id)
        return bracket.number

    def _next_bracket(self) -> Bracket:
        before = self._open
        while True:
            number, self._made = self._made, self._made + 1
            band, place = divmod(number, self._size_of_band)
            size, rungs = self.bracket(self._size_of_band - 1 - place if self._largest_first else place)
            if rungs[0] > 0:  # else its trials would have to end before they begin
                break
        self._open = number
        self._brackets[number] = Bracket(number, band, size, rungs, self._factor)
        if before in self._brackets:
            self._brackets[before].close()
            self._tidy(before)
        return self._brackets[number]

    def _tidy(self, number: int) -> None:
        """Forget a bracket that is done with."""
        bracket = self._brackets.get(number)
        if bracket is not None and not bracket.live and number != self._open:
            del self._brackets[number]

    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Verdict | Reasoned:
        trial_id = trial.trial_id
        if trial_id in self._ended:
            return Reasoned(Decision.STOP, self._reason(ReasonKind.WORSE, self._score(result)))
        number = self._bracket_of.get(trial_id)
        bracket = self._brackets[self._join(trial_id) if number is None else number]
        time, score = self._time(result), self._score(result)
        if time is not None and score is not None:
            bracket.reach(trial_id, time, score)
            if not bracket.is_ready(trial_id):
                return Decision.CONTINUE
            self._trials.hold(trial_id)
            self._go_on(bracket)
        if trial_id in self._ended:
            reason = next((order.reason for order in self._orders if order.trial_id == trial_id), None)
            self._orders = [order for order in self._orders if order.trial_id != trial_id]
            return Decision.STOP if reason is None else Reasoned(Decision.STOP, reason)
        if trial_id not in self._trials.held:
            return Decision.CONTINUE
        return Reasoned(Decision.PAUSE, self._reason(ReasonKind.WAITS, score))

    def _go_on(self, bracket: Bracket, *, though_not_full: bool = False) -> None:
        """Halve the bracket as often as all are ready for it; end or free whom that lets."""
        while bracket.may_halve and (bracket.full or though_not_full or not self._more):
            for trial_id, cut in bracket.halve():
                worse = self._reason(ReasonKind.WORSE, cut.score, rank=cut.rank, of=cut.of, cut=cut.needed)
                self._end(trial_id, worse)
        done = bracket.halvings_left == 0 and self._stop_last_trials
        for trial_id in [trial_id for trial_id in bracket.live if trial_id in self._trials.held]:
            if not bracket.is_ready(trial_id) or (bracket.halvings_left == 0 and not done):
                self._trials.let_run(trial_id)
            elif done:
                self._end(trial_id, self._limit(bracket.remove(trial_id), bracket.end))
        self._tidy(bracket.number)

    def _end(self, trial_id: str, reason: Reason) -> None:
        self._stopped += 1
        self._bracket_of.pop(trial_id, None)
        self._trials.hold(trial_id)
        self._ended[trial_id] = None
        self._orders = [*self._orders, Directive(trial_id, Decision.STOP, reason)]

    def on_trial_remove(self, trial: TrialView) -> None:
        self._ended.pop(trial.trial_id, None)
        self._trials.drop(trial.trial_id)
        number = self._bracket_of.pop(trial.trial_id, None)
        if number is not None:
            self._brackets[number].remove(trial.trial_id)
            self._go_on(self._brackets[number])

    def on_trial_held(self, trial: TrialView) -> None:
        number = self._bracket_of.get(trial.trial_id)
        if number is not None and not self._brackets[number].is_ready(trial.trial_id):
            self._trials.drop(trial.trial_id)  # it joins a bracket again when it goes on
            self._brackets[self._bracket_of.pop(trial.trial_id)].remove(trial.trial_id)

    def on_search_end(self) -> None:
        self._more = False
        for bracket in list(self._brackets.values()):
            self._go_on(bracket)

    def on_idle(self) -> None:
        for bracket in list(self._brackets.values()):
            self._go_on(bracket, though_not_full=True)
        known = {order.trial_id for order in self._orders}
        worse = self._reason(ReasonKind.WORSE)
        ends = [Directive(trial_id, Decision.STOP, worse) for trial_id in self._ended if trial_id not in known]
        self._orders = [*self._orders, *ends]

    def choose_trial_to_run(self, pending: Sequence[T]) -> T | None:
        return min(self._trials.runnable(pending), key=lambda trial: self._urgency(trial.trial_id), default=None)

    def _urgency(self, trial_id: str) -> tuple[float, float, int]:
        """The earliest band first, in it the bracket that has come least far."""
        bracket = self._brackets.get(self._bracket_of.get(trial_id, -1))
        if bracket is None:
            return math.inf, 0.0, 0
        return bracket.band, 0.0 if self._largest_first else bracket.completion(), bracket.number

    def debug_string(self) -> str:
        brackets = "".join(f"; {bracket}" for bracket in self._brackets.values())
        return f"Using {type(self).__name__}: num_stopped={self._stopped}, total_brackets={self._made}{brackets}"

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "brackets": [bracket.get_state() for bracket in self._brackets.values()]}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        brackets = [Bracket.from_state(saved) for saved in state["brackets"]]
        self._brackets = {bracket.number: bracket for bracket in brackets}
