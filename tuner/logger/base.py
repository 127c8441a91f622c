"""`LoggerCallback`: a callback whose hooks are about one trial's log."""

from __future__ import annotations

from typing import Any

from tuner.callback import Callback, Trials
from tuner.experiment.trial import Trial


class LoggerCallback(Callback):
    """Base of loggers: override `log_trial_*`.

    Example:
        >>> class Printing(LoggerCallback):
        ...     def log_trial_result(self, iteration, trial, result):
        ...         print(trial.name, result)
    """

    reads_result_json = False
    """True: there has to be a `result.json` in each trial's directory."""

    def log_trial_start(self, trial: Trial) -> None:
        """An attempt of the trial starts."""

    def log_trial_restore(self, trial: Trial) -> None:
        """The attempt continues from a checkpoint."""

    def log_trial_save(self, trial: Trial) -> None:
        """The trial has a new checkpoint."""

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """The trial reported."""

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """The trial is over."""

    def log_trial_rollback(self, trial: Trial, iteration: int) -> None:
        """Results after `iteration` are void and will be reported again."""

    @property
    def takes_back(self) -> bool:
        return type(self).log_trial_rollback is not LoggerCallback.log_trial_rollback

    def on_trial_start(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        self.log_trial_start(trial)

    def on_trial_restore(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        self.log_trial_restore(trial)

    def on_trial_save(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        self.log_trial_save(trial)

    def on_trial_result(
        self, iteration: int, trials: Trials, trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        self.log_trial_result(iteration, trial, result)

    def on_trial_complete(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        self.log_trial_end(trial, failed=False)

    def on_trial_error(self, iteration: int, trials: Trials, trial: Trial, **info: Any) -> None:
        self.log_trial_end(trial, failed=True)

    def on_rollback(self, trial: Trial, iteration: int) -> None:
        self.log_trial_rollback(trial, iteration)
