"""What every scheduler must do."""

from __future__ import annotations

import copy
import gc
import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from tuner.schedulers.base import Decision, TrialScheduler

TRIALS, ITERATIONS = 12, 9


@dataclass(eq=False)
class TrialStub:
    """As much of a trial as a scheduler may look at."""

    trial_id: str
    config: dict[str, Any] = field(default_factory=dict)
    status: str = "PENDING"


def check_scheduler(make: Callable[[], TrialScheduler]) -> None:
    """Play a life of twelve trials with a scheduler, and assert its obligations.

    Args:
        make: returns a new scheduler, the same each time; it compares `loss` by `min` if it was not told otherwise.

    Raises:
        AssertionError: an obligation of `TrialScheduler` is not met; the message says which.
    """
    plain = _decisions(make, _plain)
    assert all(isinstance(decision, Decision) for _, _, decision in plain), "on_trial_result returns a Decision"
    assert plain == _decisions(make, _plain), "the same calls give the same decisions"
    metric = _prepared(make).metric
    if metric is not None:
        for spelling in (_nested, _dotted):
            found = _decisions(lambda: _renamed(make, "eval/loss"), spelling)
            assert found == _decisions(lambda: _renamed(make, "eval/loss"), _slashed), (
                f"a nested metric is found: {spelling.__doc__}"
            )
        assert _decisions(lambda: _turned(make), _negated) == plain, "min of x decides as max of -x"
    _check_state(make, plain)
    _check_choice(make)
    _check_keeps_no_trial(make)


# --- the life ----------------------------------------------------------------------------------------------


def _prepared(make: Callable[[], TrialScheduler]) -> TrialScheduler:
    scheduler = make()
    scheduler.set_search_properties(scheduler.metric or "loss", scheduler.mode or "min")
    return scheduler


def _renamed(make: Callable[[], TrialScheduler], metric: str) -> TrialScheduler:
    scheduler = make()
    scheduler._metric, scheduler._mode = metric, scheduler.mode or "min"
    return scheduler


def _turned(make: Callable[[], TrialScheduler]) -> TrialScheduler:
    scheduler = _prepared(make)
    scheduler._mode = "max" if scheduler.mode == "min" else "min"
    return scheduler


def _loss(trial: int, iteration: int) -> float:
    """Trials that cross, one that is NaN from somewhere on, one that is infinite, some that are equal."""
    if trial == 4 and iteration >= 3:
        return math.nan
    if trial == 7:
        return math.inf
    return float((trial * 5) % TRIALS // 2) + 3.0 / iteration * (trial % 3)


def _plain(loss: float, metric: str) -> dict[str, Any]:
    """{"loss": ..}"""
    return {metric: loss}


def _negated(loss: float, metric: str) -> dict[str, Any]:
    """{"loss": -..}"""
    return {metric: -loss}


def _nested(loss: float, metric: str) -> dict[str, Any]:
    """{"eval": {"loss": ..}}"""
    return {"eval": {"loss": loss}}


def _slashed(loss: float, metric: str) -> dict[str, Any]:
    """{"eval/loss": ..}"""
    return {"eval/loss": loss}


def _dotted(loss: float, metric: str) -> dict[str, Any]:
    """{"eval.loss": ..}"""
    return {"eval.loss": loss}


Spelling = Callable[[float, str], dict[str, Any]]


class _Life:
    """The trials run in lockstep; some report no metric at times, some fail, one of those comes back."""

    def __init__(self, scheduler: TrialScheduler, spelling: Spelling) -> None:
        self.scheduler, self._spelling = scheduler, spelling
        self.trials = {number: TrialStub(f"t{number:02d}", {"lr": number / 10}) for number in range(TRIALS)}
        self.decisions: list[tuple[str, int, Decision]] = []
        self._live: set[int] = set()

    def begin(self) -> _Life:
        for number, trial in self.trials.items():
            self.scheduler.on_trial_add(trial)
            trial.status = "RUNNING"
            self._live.add(number)
        return self

    def play(self, start: int = 1, stop: int = ITERATIONS + 1) -> _Life:
        for iteration in range(start, stop):
            for number in sorted(self._live):
                self._report(number, iteration)
        return self

    def _report(self, number: int, iteration: int) -> None:
        trial = self.trials[number]
        if number == 2 and iteration == 3:
            self._end(number, "ERROR")
            self.scheduler.on_trial_error(trial)
            return
        if number == 5 and iteration == 4:  # fails, and is continued
            self.scheduler.on_trial_error(trial)
        result: dict[str, Any] = {"training_iteration": iteration, "time_total_s": iteration * 2.0, "note": "text"}
        if not (number == 3 and iteration % 2):
            result |= self._spelling(_loss(number, iteration), str(self.scheduler.metric))
        if number == 6 and iteration == 2:
            result[str(self.scheduler.metric)] = "not a number"
        before, config = copy.deepcopy(result), copy.deepcopy(trial.config)
        decision = self.scheduler.on_trial_result(trial, result)
        assert repr(result) == repr(before) and trial.config == config, "a result and a config are not changed"
        self.decisions.append((trial.trial_id, iteration, decision))
        if decision is Decision.STOP or iteration == ITERATIONS:
            self._end(number, "TERMINATED")
            self.scheduler.on_trial_complete(trial, result)
        elif number == 8 and iteration == 6:  # what the experiment's early end does
            self._end(number, "PENDING")
            self.scheduler.on_trial_remove(trial)

    def _end(self, number: int, status: str) -> None:
        self.trials[number].status = status
        self._live.discard(number)


def _decisions(make: Callable[[], TrialScheduler], spelling: Spelling) -> list[tuple[str, int, Decision]]:
    return _Life(_prepared(make), spelling).begin().play().decisions


def _check_state(make: Callable[[], TrialScheduler], expected: list[tuple[str, int, Decision]]) -> None:
    for cut in range(1, ITERATIONS + 1):
        life = _Life(_prepared(make), _plain).begin().play(1, cut)
        state = cloudpickle.loads(cloudpickle.dumps(life.scheduler.get_state()))
        life.scheduler = _prepared(make)
        life.scheduler.set_state(state)
        life.play(cut)
        assert life.decisions == expected, (
            f"it goes on from its state as if nothing had been (cut before iteration {cut})"
        )
        assert isinstance(life.scheduler.debug_string(), str), "debug_string returns text"


def _check_choice(make: Callable[[], TrialScheduler]) -> None:
    scheduler = _prepared(make)
    pending = [TrialStub("a"), TrialStub("b")]
    for trial in pending:
        scheduler.on_trial_add(trial)
    chosen = scheduler.choose_trial_to_run(pending)
    assert chosen is None or chosen in pending, "choose_trial_to_run returns one of the waiting trials, or None"
    assert scheduler.choose_trial_to_run([]) is None, "of no waiting trials none is chosen"
    assert len(pending) == 2, "the waiting trials are not changed"


def _check_keeps_no_trial(make: Callable[[], TrialScheduler]) -> None:
    life = _Life(_prepared(make), _plain).begin().play(1, 4)
    alive = [weakref.ref(trial) for trial in life.trials.values()]
    scheduler = life.scheduler
    del life
    gc.collect()
    assert not any(reference() for reference in alive), "a scheduler keeps trial_ids, not trials"
    del scheduler
