"""A scheduler of one's own: trials pause after three steps, and only the better half of them goes on.

    python examples/custom_scheduler.py

A scheduler is pure: it is told what happens and says what is to happen, so that a run killed at any moment goes on as
if nothing had been. `tuner.testing.check_scheduler` puts one through a whole life.
"""

from __future__ import annotations

from typing import Any

import tuner as tune
from tuner.schedulers import Decision, TrialScheduler
from tuner.schedulers.base import Directive

FIRST = 3


class BetterHalf(TrialScheduler):
    """Compares all trials after `FIRST` steps."""

    needs_metric = True

    def __init__(self, trials: int) -> None:
        super().__init__()
        self.trials = trials
        self.scores: dict[str, float] = {}
        self.free: set[str] = set()
        self.decided: list[Directive] = []

    def on_trial_result(self, trial: Any, result: dict[str, Any]) -> Decision:
        if result["training_iteration"] < FIRST or trial.trial_id in self.free:
            return Decision.CONTINUE
        self.scores[trial.trial_id] = result[self.metric]
        if len(self.scores) == self.trials:
            ranked = sorted(self.scores, key=lambda each: self.scores[each], reverse=self.mode == "max")
            self.free = set(ranked[: self.trials // 2])
            self.decided = [Directive(each, Decision.STOP) for each in ranked[self.trials // 2 :]]
        return Decision.PAUSE

    def orders(self) -> list[Directive]:
        decided, self.decided = self.decided, []
        return decided

    def choose_trial_to_run(self, pending: Any) -> Any:
        waiting = (trial for trial in pending if trial.trial_id in self.free or trial.trial_id not in self.scores)
        return next(waiting, None)


class Line(tune.Trainable):
    def setup(self, config: dict) -> None:
        self.x = 0.0

    def step(self) -> dict:
        self.x += self.config["slope"]
        return {"x": self.x}

    def save_checkpoint(self, checkpoint_dir: str) -> dict:
        return {"x": self.x}

    def load_checkpoint(self, checkpoint: dict) -> None:
        self.x = checkpoint["x"]


if __name__ == "__main__":
    analysis = tune.run(
        Line,
        name="custom_scheduler",
        resume="AUTO",
        config={"slope": tune.grid_search([1, 2, 3, 4])},
        metric="x",
        mode="max",
        scheduler=BetterHalf(4),
        stop={"training_iteration": 8},
    )
    print({trial.config["slope"]: trial.iteration for trial in analysis.trials})
