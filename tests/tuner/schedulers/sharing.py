"""Trials that share a machine."""

from __future__ import annotations

from typing import Any

from tuner.schedulers import (
    Decision,
    FIFOScheduler,
    ResourceChangingScheduler,
)
from tuner.schedulers.base import Reallocate, Verdict
from tuner.testing import TrialStub

CONTINUE = Decision.CONTINUE


class Run:
    """Some trials on a machine; what they are given, they have at once."""

    def __init__(
        self, function: Any, total: dict[str, float], trials: str = "ab", base: dict[str, float] | None = None
    ) -> None:
        self.scheduler = ResourceChangingScheduler(FIFOScheduler(), function)
        self.scheduler.set_search_properties("acc", "max", total_resources=total, trial_resources=base or {"cpu": 1})
        self.trials = {name: TrialStub(name) for name in trials}
        for trial in self.trials.values():
            self.scheduler.on_trial_add(trial)

    def report(self, name: str, acc: Any = 0.0) -> dict[str, float] | Verdict:
        verdict = self.scheduler.on_trial_result(self.trials[name], {"training_iteration": 1, "acc": acc})
        if isinstance(verdict, Reallocate):
            self.trials[name].resources = verdict.resources
            return verdict.resources
        return verdict

    def end(self, name: str) -> None:
        self.scheduler.on_trial_complete(self.trials.pop(name), {})
