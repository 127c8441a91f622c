"""A scripted run of fourteen trials that treats a scheduler as the driver does."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from tuner.schedulers.base import Decision, Directive, Exploit, Reallocate, Reasoned, TrialScheduler, Verdict, split
from tuner.search.searcher import names_of

TRIALS, ITERATIONS, ROOM = 14, 9, 3
FIRST_TRIALS = 9
"""After so many the searcher has nothing more until the experiment has come to a halt."""
_TURNS = 2000


@dataclass(eq=False)
class TrialStub:
    """As much of a trial as a scheduler may look at."""

    trial_id: str
    config: dict[str, Any] = field(default_factory=dict)
    status: str = "PENDING"
    resources: dict[str, float] | None = None


Spelling = Callable[[float, str], dict[str, Any]]


def plain(loss: float, metric: str) -> dict[str, Any]:
    """{"loss": ..}"""
    return {metric: loss}


def loss_of(trial: int, iteration: int) -> float:
    """Trials that cross, one that is NaN from somewhere on, one that is infinite, some that are equal."""
    if trial == 4 and iteration >= 3:
        return math.nan
    if trial == 7:
        return math.inf
    return float((trial * 5) % 12 // 2) + 3.0 / iteration * (trial % 3)


@dataclass(eq=False)
class _Played:
    """A trial as this loop knows it: the even ones are class trainables, the odd ones functions that save seldom."""

    number: int
    trial: TrialStub
    iteration: int = 0
    last: dict[str, Any] = field(default_factory=dict)
    saved: int | None = None
    """The iteration of its newest published checkpoint, which may be a donor's count."""
    unpublished: int | None = None
    pausing: bool = False

    def saves(self, iteration: int, *, asked: bool) -> bool:
        return iteration % 4 == 0 if self.number % 2 else asked or iteration % 3 == 0


class ScriptedLife:
    """Plays fourteen trials, three at a time, and notes what the scheduler decides.

    New trials are created when no waiting one is chosen; the searcher pauses once. Checkpoints are published a turn
    late. Trial 1 repeats what it reported (untold), 2 fails, 3 reports its metric now and then, 5 fails and comes back,
    6 reports a text, 8 is removed, 9 is ended by a stopper with a result that nobody asked about.

    Args:
        make: the scheduler; called again where the life is cut.
        cut: before this call the scheduler is exchanged for a new one with its state.
        crash: trial 1 begins a second attempt.
    """

    def __init__(
        self, make: Callable[[], TrialScheduler], spelling: Spelling = plain, *, cut: int = -1, crash: bool = True
    ) -> None:
        self._make, self._spelling, self._cut, self._crash = make, spelling, cut, crash
        self.scheduler = make()
        self.decisions: list[tuple[Any, ...]] = []
        self.calls = 0
        self._played: dict[str, _Played] = {}
        self._pending: list[TrialStub] = []
        self._running: list[_Played] = []
        self._orders: dict[str, Directive] = {}
        self._unchosen: TrialStub | None = None
        self._halted = self._search_ended = False
        self._over: set[tuple[int, str]] = set()

    def play(self, *, turns: int = _TURNS) -> ScriptedLife:
        """So many turns, or all."""
        for _ in range(turns):
            self._fill()
            if not self._running:
                if not self._idle():
                    break
                continue
            for played in list(self._running):
                self._publish(played)
                self._report(played)
        else:
            assert turns < _TURNS, "the trials come to an end"
            return self
        assert not self._pending, (
            "nobody waits for ever: where nothing runs and no new trial comes, one that waits is chosen, or ordered to "
            f"end in on_idle; these wait: {[trial.trial_id for trial in self._pending]}"
        )
        return self

    def _ask(self, method: str, *arguments: Any) -> Any:
        if self.calls == self._cut:
            state = cloudpickle.loads(cloudpickle.dumps(self.scheduler.get_state()))
            self.scheduler = self._make()
            self.scheduler.set_state(state)
        self.calls += 1
        answer = getattr(self.scheduler, method)(*arguments)
        for order in self.scheduler.orders():
            assert isinstance(order, Directive), f"orders returns Directives, not {order!r}"
            assert order.trial_id in self._played, f"an order is about a trial that there is, not {order.trial_id!r}"
            assert order.what is Decision.STOP or isinstance(order.what, Exploit), "an order is STOP or an Exploit"
            self.decisions.append(("order", order))
            self._orders[order.trial_id] = order
        self._carry_out()
        return answer

    def _carry_out(self) -> None:
        """Do what was ordered for those who wait; the others have it before them."""
        for trial in [trial for trial in self._pending if trial.trial_id in self._orders]:
            order = self._orders.pop(trial.trial_id, None)
            played = self._played[trial.trial_id]
            if order is None or trial not in self._pending:
                continue  # carried out for the sake of another order
            if order.what is Decision.STOP:
                self._pending.remove(trial)
                self._end(played, "TERMINATED", "on_trial_complete", played.last)
            elif isinstance(order.what, Exploit):
                self._clone(played, order.what)

    def _fill(self) -> None:
        while len(self._running) < ROOM:
            chosen = self._choose()
            if chosen is None and (self._unchosen is None or self._unchosen not in self._pending):
                self._unchosen = self._create()
                chosen = None if self._unchosen is None else self._choose()
            if chosen is None:
                return
            if chosen is self._unchosen:
                self._unchosen = None
            self._start(chosen)

    def _choose(self) -> TrialStub | None:
        view, again = PendingView(self._pending), PendingView(self._pending)
        chosen: TrialStub | None = self._ask("choose_trial_to_run", view)
        assert chosen is None or any(chosen is trial for trial in self._pending), (
            "choose_trial_to_run returns one of the waiting trials, or None"
        )
        assert self.scheduler.choose_trial_to_run(again) is chosen, (
            "choose_trial_to_run changes nothing: asked again, it chooses the same"
        )
        view.outdated = again.outdated = True
        self.decisions.append(("choose", None if chosen is None else chosen.trial_id))
        return chosen

    def _create(self) -> TrialStub | None:
        number = len(self._played)
        if self.scheduler.population and number < FIRST_TRIALS and not number:
            return [self._created(number) for number in range(FIRST_TRIALS)][0]
        if number == FIRST_TRIALS and not self._halted:
            return None
        if number == TRIALS:
            if not self._search_ended:
                self._search_ended = True
                self._ask("on_search_end")
            return None
        return self._created(number)

    def _created(self, number: int) -> TrialStub:
        given = {"lr": 0.1 + number / 10, "layers": number % 3 + 1}
        config = self.scheduler.first_config(copy.deepcopy(given))
        trial = TrialStub(f"t{number:02d}", config)
        self._played[trial.trial_id] = _Played(number, trial)
        self._pending.append(trial)
        self._ask("on_trial_add", trial)
        return trial

    def _start(self, trial: TrialStub) -> None:
        played = self._played[trial.trial_id]
        self._pending.remove(trial)
        trial.status, played.pausing = "RUNNING", False
        self._running.append(played)
        self._ask("on_trial_start", trial)
        if played.iteration == ITERATIONS:  # it paused with its last result
            self._end(played, "TERMINATED", "on_trial_complete", played.last)

    def _idle(self) -> bool:
        before = len(self.decisions)
        first, self._halted = not self._halted, True
        self._ask("on_idle")
        return first or len(self.decisions) > before or self._choose() is not None

    def _report(self, played: _Played) -> None:
        if played not in self._running:
            return  # it was ended by an order
        number, trial, iteration = played.number, played.trial, played.iteration + 1
        if (number, iteration) == (2, 3):
            self._end(played, "ERROR", "on_trial_error")
            return
        if (number, iteration) == (8, 6):
            self._end(played, "PENDING", "on_trial_remove")
            return
        if (number, iteration) == (5, 4) and self._once(played, "failed"):
            self._end(played, "ERROR", "on_trial_error")
            trial.status = "PENDING"
            self._pending.append(trial)
            return
        if (number, iteration) == (1, 5) and self._crash and self._once(played, "crashed"):
            # Back to its checkpoint: what it reports up to here is not told again.
            self._ask("on_trial_start", trial)
        result = self._result(number, iteration)
        if (number, iteration) == (9, 7):
            played.last = result
            self._end(played, "TERMINATED", "on_trial_complete", result)
            return
        before, config = repr(result), copy.deepcopy(trial.config)
        answer: Verdict | Reasoned = self._ask("on_trial_result", trial, result)
        verdict = answer.verdict if isinstance(answer, Reasoned) else answer
        assert isinstance(verdict, (Decision, Exploit, Reallocate)), (
            f"on_trial_result returns a Decision, an Exploit or a Reallocate, or one of them Reasoned, not {answer!r}"
        )
        assert repr(result) == before and trial.config == config, "a result and a config are not changed"
        self.decisions.append((trial.trial_id, iteration, verdict))
        played.iteration, played.last = iteration, result
        self._obey(played, answer, result)

    def _result(self, number: int, iteration: int) -> dict[str, Any]:
        result: dict[str, Any] = {"training_iteration": iteration, "time_total_s": iteration * 2.0, "note": "text"}
        metrics = names_of(self.scheduler.metric) or ["None"]
        if not (number == 3 and iteration % 2):
            for place, metric in enumerate(metrics):  # the further ones rise where the first one falls
                loss = loss_of(number, iteration) if place == 0 else float(iteration - number * place % 9)
                result |= self._spelling(loss, metric)
        if (number, iteration) == (6, 2):
            result[metrics[-1]] = "not a number"
        return result

    def _once(self, played: _Played, what: str) -> bool:
        seen = (played.number, what) in self._over
        self._over.add((played.number, what))
        return not seen

    def _obey(self, played: _Played, answer: Verdict | Reasoned, result: dict[str, Any]) -> None:
        trial, iteration = played.trial, played.iteration
        verdict, reason = split(answer, type(self.scheduler).__name__, iteration)
        assert (reason is None) == (verdict is Decision.CONTINUE), "every verdict but CONTINUE has a reason"
        ordered = self._orders.get(trial.trial_id)
        if verdict is Decision.STOP or (ordered is not None and ordered.what is Decision.STOP):
            self._end(played, "TERMINATED", "on_trial_complete", result)
            return
        if isinstance(verdict, Exploit):
            if self._clone(played, verdict):
                self._pause(played)
                return
        elif ordered is not None or verdict is Decision.PAUSE or isinstance(verdict, Reallocate):
            played.pausing = True
        if isinstance(verdict, Reallocate):
            assert all(isinstance(amount, (int, float)) for amount in verdict.resources.values()), (
                f"resources are numbers, not {verdict.resources!r}"
            )
            trial.resources = dict(verdict.resources)
        if played.saves(iteration, asked=played.pausing or verdict is Decision.SAVE):
            played.unpublished = iteration
            if played.pausing:
                self._pause(played)
                return
        if iteration == ITERATIONS:
            self._end(played, "TERMINATED", "on_trial_complete", result)

    def _clone(self, played: _Played, exploit: Exploit) -> bool:
        """Give it another one's checkpoint and config; False: that one has none, and nothing happens."""
        donor = self._played.get(exploit.donor)
        assert donor is not None, f"a donor is a trial that there is, not {exploit.donor!r}"
        assert isinstance(exploit.config, dict), "an Exploit has the whole config"
        if donor.saved is None:
            return False
        played.trial.config, played.saved = copy.deepcopy(exploit.config), donor.saved
        return True

    def _pause(self, played: _Played) -> None:
        self._publish(played)
        played.trial.status = "PAUSED"
        if played in self._running:
            self._running.remove(played)
            self._pending.append(played.trial)
            self._carry_out()

    def _publish(self, played: _Played) -> None:
        if played.unpublished is not None:
            played.saved, played.unpublished = played.unpublished, None
            self._ask("on_checkpoint", played.trial, played.saved)

    def _end(self, played: _Played, status: str, method: str, *arguments: Any) -> None:
        self._publish(played)
        played.trial.status = status
        if played in self._running:
            self._running.remove(played)
        self._orders.pop(played.trial.trial_id, None)
        self._ask(method, played.trial, *arguments)

    @property
    def trials(self) -> list[TrialStub]:
        return [played.trial for played in self._played.values()]


class PendingView(Sequence[TrialStub]):
    """Those who wait, to be read only, and only now."""

    def __init__(self, trials: list[TrialStub]) -> None:
        self._trials = trials
        self.outdated = False

    def _now(self) -> list[TrialStub]:
        assert not self.outdated, "the waiting trials are read when they are given, and not kept"
        return self._trials

    def __getitem__(self, index: Any) -> Any:
        return self._now()[index]

    def __len__(self) -> int:
        return len(self._now())

    def __iter__(self) -> Iterator[TrialStub]:
        return iter(tuple(self._now()))
