"""`ResultGrid`: the results of `Tuner.fit()`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, overload

from trainables.arrow_filesystem import filesystem_of
from trainables.result import Result
from tuner.analysis import scopes
from tuner.analysis.experiment import ExperimentAnalysis, Showable
from tuner.analysis.loaded import config_of, frame_of, last_result
from tuner.error import MetricMissingError, SettingError, TrialError, TrialProcessDiedError, TrialTimeoutError
from tuner.experiment.forks import config_at
from tuner.experiment.outcome import ended_because
from tuner.experiment.trial import Trial

if TYPE_CHECKING:
    import pandas
    from pyarrow.fs import FileSystem

_KINDS: dict[str, type[TrialError]] = {
    "TrialTimeoutError": TrialTimeoutError,
    "TrialProcessDiedError": TrialProcessDiedError,
}


class ResultGrid(Showable):
    """One `Result` per trial, in order of creation.

    Args:
        experiment_analysis: where they come from; or a path or URI of an experiment.

    Raises:
        ExperimentNotFoundError: there is none.

    Example:
        >>> grid = tune.Tuner(train, param_space={"lr": tune.grid_search([0.1, 0.01])}).fit()
        >>> grid.get_best_result("loss", "min").config, grid.num_errors, [result.metrics["loss"] for result in grid]
    """

    def __init__(self, experiment_analysis: ExperimentAnalysis | str | PathLike[str]) -> None:
        if isinstance(experiment_analysis, str | PathLike):
            experiment_analysis = ExperimentAnalysis(experiment_analysis)
        self._analysis = experiment_analysis
        self._experiment_analysis = experiment_analysis  # many programs for Ray reach for it

    @property
    def experiment_path(self) -> str:
        """The experiment's directory."""
        return self._analysis.experiment_path

    @property
    def filesystem(self) -> FileSystem:
        """What `experiment_path` lies on, as an object of pyarrow. Raises MissingExtraError without pyarrow."""
        return filesystem_of(self.experiment_path)

    @property
    def errors(self) -> list[TrialError]:
        """Why trials failed, one error each."""
        return [error for trial in self._analysis.trials if (error := error_of(trial)) is not None]

    @property
    def num_errors(self) -> int:
        """How many trials failed."""
        return sum(trial.status == Trial.ERROR for trial in self._analysis.trials)

    @property
    def num_terminated(self) -> int:
        """How many trials came to a good end."""
        return sum(trial.status == Trial.TERMINATED for trial in self._analysis.trials)

    def get_best_result(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool | None = None,
    ) -> Result:
        """The result of the best trial; of equals the earlier one.

        Args:
            metric, mode: default: those of the `TuneConfig`. The result of a single trial needs none.
            scope, filter_nan_and_inf: as in `ExperimentAnalysis.get_best_trial`.

        Raises SettingError without a metric, MetricMissingError if no trial has such a number; it lists what there is.
        """
        analysis = self._analysis
        if len(analysis.trials) == 1 and metric is None and analysis.default_metric is None:
            return self[0]
        if metric is None and analysis.default_metric is None:
            raise SettingError("No metric is provided: name one in get_best_result(metric=, mode=) or in TuneConfig")
        metric, mode = scopes.check(metric or analysis.default_metric, mode or analysis.default_mode, scope)
        best = scopes.best(analysis.trials, metric, mode, scope, filter_nan_and_inf=filter_nan_and_inf)
        if best is None:
            raise MetricMissingError(f"No best trial found for the given metric: {metric}: {analysis.why_not(metric)}")
        return self._result(best)

    def get_dataframe(self, filter_metric: str | None = None, filter_mode: str | None = None) -> pandas.DataFrame:
        """One row per trial: its last result, or the one with the best `filter_metric`; configs as "config/..."."""
        return self._analysis.dataframe(filter_metric, filter_mode)

    def _experiment(self) -> ExperimentAnalysis:
        return self._analysis

    def __len__(self) -> int:
        return len(self._analysis.trials)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> list[Result]: ...
    def __getitem__(self, index: int | slice) -> Result | list[Result]:
        if isinstance(index, slice):
            return [self._result(trial) for trial in self._analysis.trials[index]]
        return self._result(self._analysis.trials[index])

    def __iter__(self) -> Iterator[Result]:
        return map(self._result, self._analysis.trials)

    def _result(self, trial: Trial) -> Result:
        return Result(
            metrics=last_result(trial) or {"config": config_of(trial)},
            checkpoint=trial.checkpoint,
            error=error_of(trial),
            path=trial.path,
            end_reason=ended_because(trial),
            metrics_dataframe=partial(frame_of, self._analysis.trials, trial),
            config=partial(config_at, trial, trial.iteration),  # opened when asked for: it may hold pickled values
            best_checkpoints=[
                (trial.open_checkpoint(record), record.metrics) for record in self._analysis.best_checkpoints(trial)
            ],
        )

    def _repr_html_(self) -> str:
        return self._analysis._repr_html_()

    def __repr__(self) -> str:
        shown = [repr(result) for result in self[:10]]
        if len(self) > 10:
            shown.append(f"... and {len(self) - 10} more")
        inner = ",\n".join(shown).replace("\n", "\n  ")
        return f"{type(self).__name__}<[\n  {inner}\n]>"


def error_of(trial: Trial) -> TrialError | None:
    """Why a trial failed, as an exception that carries the trial's own traceback; None if it did not."""
    error = trial.error
    if error is None or trial.status != Trial.ERROR:
        return None
    return _KINDS.get(error.type, TrialError)(f"{error.type}: {error.message}", error.traceback)
