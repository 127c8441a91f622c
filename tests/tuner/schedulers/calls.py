"""Counting what a scheduler does, and telling it things briefly."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, cast

from tuner.schedulers import Decision, TrialScheduler
from tuner.schedulers.base import Directive, Verdict
from tuner.testing import TrialStub

CONTINUE, PAUSE, STOP = Decision.CONTINUE, Decision.PAUSE, Decision.STOP


def stops(*names: str) -> list[Directive]:
    return [Directive(name, STOP) for name in names]


class Told:
    """A scheduler whose trials are named by letters, and what it ordered."""

    def __init__(self, scheduler: TrialScheduler, names: str = "") -> None:
        self.scheduler = scheduler
        self.trials: dict[str, TrialStub] = {}
        self.orders: list[Directive] = []
        self.add(names)

    def add(self, names: str) -> None:
        for name in names:
            self.trials[name] = TrialStub(name)
            self.scheduler.on_trial_add(self.trials[name])
            self.scheduler.on_trial_start(self.trials[name])

    def say(self, name: str, time: float, value: Any, **more: Any) -> Verdict:
        """A result; what it was answered. Directives are in `orders` then."""
        result = {"training_iteration": time, "acc": value, **more}
        verdict = self.scheduler.on_trial_result(self.trials[name], result)
        self.orders = list(self.scheduler.orders())
        return verdict

    def do(self, method: str, *arguments: Any) -> list[Directive]:
        """Call a method, of a trial where the first argument is a name; returns the orders."""
        named = [self.trials[argument] if isinstance(argument, str) else argument for argument in arguments]
        getattr(self.scheduler, method)(*named)
        self.orders = list(self.scheduler.orders())
        return self.orders

    def choose(self, names: str) -> str | None:
        """Which of those that wait is chosen."""
        chosen = self.scheduler.choose_trial_to_run([self.trials[name] for name in names])
        return None if chosen is None else chosen.trial_id


def count_calls(work: Callable[[], Any]) -> int:
    """How many functions, ours and the interpreter's, were called."""
    count = 0

    def counted(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    gc.disable()  # what it finalizes would be counted
    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


class Worker:
    """One place to run in: whom the scheduler chooses, else a new trial, trains there until it pauses or ends."""

    def __init__(self, scheduler: TrialScheduler, *, trials: int) -> None:
        self.scheduler, self._trials = scheduler, trials
        self.waiting: dict[str, TrialStub] = {}
        self.created = 0
        self._times: dict[str, int] = {}
        self._draw = random.Random(0)

    def work(self, results: int) -> None:
        """So many results, or until there is nothing to do."""
        end, self._results = results, 0
        while self._results < end:
            trial = self.scheduler.choose_trial_to_run(cast(Sequence[TrialStub], _View(self.waiting))) or self._create()
            if trial is not None:
                self._run(trial)
                continue
            before = len(self.waiting)
            self.scheduler.on_idle()
            self._carry_out()
            if len(self.waiting) == before and self.scheduler.choose_trial_to_run(list(self.waiting.values())) is None:
                return

    def _create(self) -> TrialStub | None:
        if self.created == self._trials:
            return None
        trial = TrialStub(f"t{self.created}")
        self.created += 1
        self.scheduler.on_trial_add(trial)
        return trial

    def _run(self, trial: TrialStub) -> None:
        self.waiting.pop(trial.trial_id, None)
        self.scheduler.on_trial_start(trial)
        verdict: Verdict = CONTINUE
        while verdict == CONTINUE:
            self._results += 1
            time = self._times[trial.trial_id] = self._times.get(trial.trial_id, 0) + 1
            result = {"training_iteration": time, "acc": self._draw.random()}
            verdict = self.scheduler.on_trial_result(trial, result)
            self._carry_out()
        if verdict == STOP:
            self.scheduler.on_trial_complete(trial, result)
        else:
            self.waiting[trial.trial_id] = trial

    def _carry_out(self) -> None:
        for order in self.scheduler.orders():
            self.scheduler.on_trial_complete(self.waiting.pop(order.trial_id), {})


class _View:
    """What the loop gives: a length, an item and who waits under a name, each at the cost of one."""

    def __init__(self, waiting: dict[str, TrialStub]) -> None:
        self.get = waiting.get
        self._waiting = waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def __getitem__(self, index: int) -> TrialStub:
        assert index == 0
        return next(iter(self._waiting.values()))
