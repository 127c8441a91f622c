"""A run without a loop: facts, callbacks and a real state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from trainables import tagged
from trainables.wire import CheckpointRef
from tuner.analysis import ExperimentAnalysis
from tuner.callback import CallbackList
from tuner.experiment import events as ev
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial


class Lab:
    """Does what the loop does with a trial, in the same order."""

    def __init__(self, root: Path, *callbacks: Any) -> None:
        self.state = ExperimentState(root)
        self.callbacks = CallbackList(callbacks)

    def trial(self, **config: Any) -> Trial:
        index = len(self.state.trials)
        trial_id = f"ab_{index:05d}"
        raw = msgspec.Raw(tagged.dumps(config))
        self.state.apply(
            ev.TrialCreated(trial_id, index, raw, raw, f"{index}", f"train_{trial_id}", f"train_{trial_id}")
        )
        trial = self.state.trials[-1]
        trial.directory.mkdir(parents=True)
        return self.start(trial)

    def start(self, trial: Trial) -> Trial:
        self.state.apply(ev.AttemptStarted(trial.trial_id, trial.attempt + 1, 1, 0.0))
        self.callbacks.on_trial_start(0, self.state.trials, trial)
        return trial

    def report(self, trial: Trial, then: str = "continue", **metrics: Any) -> dict[str, Any]:
        result = {"done": False, **metrics, "training_iteration": trial.iteration + 1}
        self.callbacks.on_trial_result(0, self.state.trials, trial, result)
        self.callbacks.after_trial_result(0, self.state.trials, trial, result)
        if then == "stop":
            result["done"] = True  # decided after the callbacks saw it
        raw = msgspec.Raw(tagged.dumps(result))
        fact = ev.ResultReported(trial.trial_id, trial.attempt, trial.iteration + 1, raw)
        self.state.add_result(trial, fact, result)
        return result

    def rollback(self, trial: Trial, iteration: int) -> None:
        self.state.apply(ev.RolledBack(trial.trial_id, trial.attempt, iteration))
        self.callbacks.on_rollback(trial, iteration)

    def end(self, trial: Trial, error: ev.ErrorInfo | None = None) -> None:
        self.state.apply(ev.TrialEnded(trial.trial_id, "ERROR" if error else "TERMINATED", 1.0, error))
        tell = self.callbacks.on_trial_error if error else self.callbacks.on_trial_complete
        tell(0, self.state.trials, trial)

    def finish(self) -> None:
        self.callbacks.on_experiment_end(self.state.trials)

    def save(self, trial: Trial) -> CheckpointRef:
        """A published checkpoint, as far as the state knows."""
        ref = CheckpointRef(trial.trial_id, f"checkpoint_{trial.iteration:06d}", 1, 1, trial.saves + 1, trial.iteration)
        self.state.apply(ev.CheckpointPublished(ref, 10, "", 0.0, msgspec.Raw(tagged.dumps(trial.last_result))))
        return ref

    def analysis(self, metric: Any = "loss", mode: Any = "min", **settings: Any) -> ExperimentAnalysis:
        return ExperimentAnalysis(
            self.state.root, trials=self.state.trials, metric=metric, mode=mode, settings=settings
        )
