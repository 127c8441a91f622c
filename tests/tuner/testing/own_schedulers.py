"""Schedulers of a user's."""

from __future__ import annotations

from typing import Any

from tuner.schedulers import (
    Decision,
    TrialScheduler,
    TrialView,
)
from tuner.schedulers.base import Directive, Exploit, Reallocate, Verdict


class Counting(TrialScheduler):
    """Stops after its fifth result, whoever reports it."""

    def __init__(self) -> None:
        super().__init__(metric="loss", mode="min")
        self.count = 0

    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Decision:
        self.count += 1
        return Decision.STOP if self.count == 5 else Decision.CONTINUE


class Cloning(Counting):
    """Does everything that a scheduler may: asks for saves, pauses, clones, moves to other resources, orders."""

    def __init__(self) -> None:
        super().__init__()
        self.saved: dict[str, int] = {}
        self.ordered: list[Directive] = []

    def on_trial_result(self, trial: TrialView, result: dict[str, Any]) -> Verdict:
        self.count += 1
        donor = next(iter(self.saved), None)
        if donor is None:
            return Decision.SAVE
        if self.count % 7 == 0 and donor != trial.trial_id:
            return Exploit(donor, {**trial.config, "lr": trial.config["lr"] / 2})
        if self.count % 11 == 0:
            self.ordered = [Directive("t03", Exploit(donor, {"lr": 1.0})), Directive("t06", Decision.STOP)]
        return (Decision.CONTINUE, Decision.PAUSE, Reallocate({"cpu": 2.0}))[self.count % 3]

    def on_checkpoint(self, trial: TrialView, iteration: int) -> None:
        self.saved[trial.trial_id] = iteration

    def orders(self) -> list[Directive]:
        ordered, self.ordered = self.ordered, []
        return [] if self.count < 40 else ordered
