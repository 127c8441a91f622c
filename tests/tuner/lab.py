"""A run without a loop: facts, callbacks and a real state."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from tests.tuner.driver.harness import plugin_set
from trainables import tagged
from trainables.wire import CheckpointRef
from tuner.analysis import ExperimentAnalysis
from tuner.driver.plugins import FactApplier
from tuner.experiment import events as ev
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial


class Lab:
    """Has facts applied, as the loop does."""

    def __init__(self, root: Path, *callbacks: Any) -> None:
        self.facts = FactApplier(ExperimentState(root), plugin_set(*callbacks))
        self.callbacks = self.facts.plugins.callbacks

    @property
    def state(self) -> ExperimentState:
        return self.facts.state

    @state.setter
    def state(self, state: ExperimentState) -> None:
        self.facts.state = state

    def trial(self, **config: Any) -> Trial:
        index = len(self.state.trials)
        trial_id = f"ab_{index:05d}"
        raw = msgspec.Raw(tagged.dumps(config))
        self.facts.apply(
            ev.TrialCreated(trial_id, index, raw, raw, f"{index}", f"train_{trial_id}", f"train_{trial_id}")
        )
        trial = self.state.trials[-1]
        trial.directory.mkdir(parents=True)
        return self.start(trial)

    def start(self, trial: Trial) -> Trial:
        self.facts.apply(ev.AttemptStarted(trial.trial_id, trial.attempt + 1, 1, 0.0))
        self.facts.launched(trial, restored=False)
        return trial

    def report(self, trial: Trial, then: Literal["continue", "stop"] = "continue", **metrics: Any) -> dict[str, Any]:
        iteration = trial.iteration + 1
        heard = self.facts.hear(trial, {"done": False, **metrics, "training_iteration": iteration}, iteration)
        if then == "stop":
            heard.result["done"] = True  # decided after the callbacks saw it
        raw = msgspec.Raw(tagged.dumps(heard.result))
        fact = ev.ResultReported(trial.trial_id, trial.attempt, iteration, raw, then)
        self.facts.keep(heard, fact, lambda fact: None)
        return heard.result

    def rollback(self, trial: Trial, iteration: int) -> None:
        self.facts.apply(ev.RolledBack(trial.trial_id, trial.attempt, iteration))

    def end(self, trial: Trial, error: ev.ErrorInfo | None = None) -> None:
        self.facts.apply(ev.TrialEnded(trial.trial_id, "ERROR" if error else "TERMINATED", 1.0, error))

    def finish(self) -> None:
        self.callbacks.on_experiment_end(self.state.trials)

    def save(self, trial: Trial) -> CheckpointRef:
        """A published checkpoint, as far as the state knows."""
        ref = CheckpointRef(trial.trial_id, f"checkpoint_{trial.iteration:06d}", 1, 1, trial.saves + 1, trial.iteration)
        self.facts.apply(ev.CheckpointPublished(ref, 10, "", 0.0, msgspec.Raw(tagged.dumps(trial.last_result))))
        return ref

    def analysis(self, metric: Any = "loss", mode: Any = "min", **settings: Any) -> ExperimentAnalysis:
        return ExperimentAnalysis(
            self.state.root, trials=self.state.trials, metric=metric, mode=mode, settings=settings
        )
