"""`ExperimentAnalysis`: the results of a run, or of an experiment that lies somewhere."""

from __future__ import annotations

import abc
import functools
import logging
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.checkpoint import Checkpoint
from trainables.config import RECENCY, ScoreOrder
from trainables.metrics import MISSING, lookup, nearest_keys, score_of
from trainables.places import parent_and_name
from trainables.result_history import frame
from trainables.store.retention import Ranking
from tuner.analysis import scopes
from tuner.analysis.loaded import LoadedExperiment, frame_of, last_result
from tuner.analysis.reported import check_reported
from tuner.error import SettingError, require
from tuner.experiment.forks import config_at
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord

if TYPE_CHECKING:
    import optuna
    import pandas

    from tuner.analysis.experiment_page import ExperimentFrame
    from tuner.analysis.plot_source import PlotSource

log = logging.getLogger(__name__)


class Showable(abc.ABC):
    """What can be shown as a study, as plots and as a page: an experiment, and its results."""

    @abc.abstractmethod
    def _experiment(self) -> ExperimentAnalysis:
        """What is shown."""

    @property
    def study(self) -> optuna.Study:
        """The experiment as an `optuna.Study` in memory: all trials with their domains, values, curves and states.

        Needs a metric and a mode: the run's, its searcher's, or those given here. `tuner.analysis.study.study_of` says
        what becomes what.
        """
        return self._experiment()._seen(None, None).study()

    def plot(
        self,
        kind: str | None = None,
        *,
        path: str | PathLike[str] | None = None,
        metric: str | None = None,
        mode: str | None = None,
    ) -> Any:
        """Show the experiment: a plotly figure of one kind, or {name: figure} of all that show something.

        A notebook shows either, without a network; elsewhere `.show()` of a figure opens a browser.

        Args:
            kind: "history" (of the best so far), "curves" (or "learning_curves"), "parallel", "importances", "slice",
                "contour", "rank" (both of the six most important numeric parameters), "edf", "pareto", "timeline",
                "schedule" (what exploits changed); None: all.
            path: also written there: an interactive .html, or .png, .svg, .pdf, drawn by a Chromium of this machine; of
                all kinds one .html page, or a directory for a file each.
            metric, mode: default: the run's; of several objectives a kind that is about one takes the first.

        Raises SettingError for what cannot be shown, with the reason, and for a metric that no trial has reported;
        MissingExtraError (`pip install "tuner[plot]"`).
        """
        from tuner.analysis import plot_files

        return plot_files.plot(self._experiment()._seen(metric, mode), kind, path)

    def report(
        self, path: str | PathLike[str] | None = None, *, metric: str | None = None, mode: str | None = None
    ) -> str:
        """Write the page of `tuner ui` as one HTML file, which needs no server and no network; return its path or URI.

        It shows the experiment as its directory has it now; of one that is very large a part, and says which.

        Args:
            path: a file or a URI that ends in .html; None: `report.html` in the experiment.
            metric, mode: default: the run's.

        Raises SettingError for another suffix, and for a metric that no trial has reported; MissingExtraError in a
        clone whose page has not been made (`make web`).
        """
        return self._experiment()._publish(path, metric, mode)

    def ui(self, *, height: int = 720, metric: str | None = None, mode: str | None = None) -> ExperimentFrame:
        """The page of `tuner ui` in a notebook: as the last value of a cell, or by `display`.

        It holds its data, of at most 1.5 MB, and shows the experiment as it was at this call, also in a saved notebook.
        A running experiment is followed by `tuner ui`.

        Args:
            height: pixels.
            metric, mode: default: the run's.

        Raises what `report` raises.
        """
        return self._experiment()._framed(height, metric, mode)


class ExperimentAnalysis(LoadedExperiment, Showable):
    """The trials of an experiment and what they came to.

    Args:
        experiment_checkpoint_path: the experiment's directory: a path, with ~, file://, its name alone under the
            default storage (what lies here comes first), or a place elsewhere ("s3://bucket/runs/mine"), whose journal
            and histories are brought here now, a checkpoint when it is used.
        trials: its trials; None: read from the directory.
        metric, mode: what is best (`default_metric`, `default_mode` are Ray's names for them); None: as the run had it,
            or its searcher.
        settings: what experiment.json holds; None: read from it.

    Nothing is unpickled, and the history of a trial is read when it is asked for. Raises ExperimentNotFoundError if
    there is no experiment, with the places looked at.

    Example:
        >>> analysis = tune.ExperimentAnalysis("my_run")
        >>> analysis.get_best_config("loss", "min")
    """

    @property
    def best_trial(self) -> Trial | None:
        """The trial with the best last result, by the run's metric; of several metrics, by the first."""
        return self.get_best_trial()

    @property
    def best_trials(self) -> list[Trial]:
        """The trials that none beats: of several metrics the Pareto front of the last results, in the trials' order.

        Of one metric all with the best one. Raises SettingError where the run had no metric, or no mode.
        """
        metrics, modes = self._objectives(None, None)
        if not metrics:
            raise SettingError("best by which metrics? Give metric= and mode= to the run, or to ExperimentAnalysis")
        pairs = [scopes.check(metric, mode) for metric, mode in zip(metrics, modes, strict=True)]
        return scopes.front(self._trials, metrics, [mode for _, mode in pairs])

    @property
    def best_config(self) -> dict[str, Any] | None:
        """Its config."""
        return self.get_best_config()

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        """Its best checkpoint."""
        trial = self.best_trial
        return None if trial is None else self._best_checkpoint(trial, *self._by(None, None))

    @property
    def best_logdir(self) -> str | None:
        """Its directory."""
        return self.get_best_logdir()

    @property
    def best_dataframe(self) -> pandas.DataFrame | None:
        """All its results."""
        trial = self.best_trial
        return None if trial is None else frame_of(self._trials, trial)

    @property
    def best_result(self) -> dict[str, Any] | None:
        """Its last result."""
        trial = self.best_trial
        return None if trial is None else last_result(trial)

    @property
    def best_result_df(self) -> pandas.DataFrame | None:
        """Its last result as a frame of one row."""
        result = self.best_result
        return None if result is None else frame([result])

    def get_best_trial(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool | None = None,
    ) -> Trial | None:
        """The best trial; of equals the earlier one; None, and a warning, if no trial has such a number.

        Args:
            metric, mode: default: the run's. Nested keys as "eval/auc".
            scope: "last" result, best of "all", mean ("avg"), or mean of the last n ("last-5-avg").
            filter_nan_and_inf: None: infinities rank as numbers, and a trial whose score is NaN is left out. True,
                Ray's default: trials with infinities are left out too. False: none is, and NaN is worst.
        """
        metric, mode = self._by(metric, mode, scope)
        found = scopes.best(self._trials, metric, mode, scope, filter_nan_and_inf=filter_nan_and_inf)
        if found is None:
            self._warn_once(f"there is no best trial: {self.why_not(metric)}")
        return found

    def get_best_config(
        self, metric: str | None = None, mode: str | None = None, scope: str = "last"
    ) -> dict[str, Any] | None:
        """The config with which the best trial reported what makes it the best: its last result, or that of the scope.

        Clones of population based training have trained with other configs before, and some after.
        """
        trial = self.get_best_trial(metric, mode, scope)
        if trial is None:
            return None
        return config_at(trial, scopes.scored_at(trial, *self._by(metric, mode), scope))

    def get_best_logdir(self, metric: str | None = None, mode: str | None = None, scope: str = "last") -> str | None:
        """The directory of the best trial."""
        trial = self.get_best_trial(metric, mode, scope)
        return None if trial is None else trial.path

    def get_best_checkpoint(
        self, trial: Trial | str, metric: str | None = None, mode: str | None = None, return_path: bool = False
    ) -> Checkpoint | str | None:
        """The best checkpoint of a trial by the result it belongs to; of equals the earlier; NaN never before a number.

        None, and a warning, if it has none with that metric. `return_path` gives its path.
        """
        made = self._best_checkpoint(self._trial(trial), *self._by(metric, mode))
        return made.path if return_path and made is not None else made

    def get_last_checkpoint(
        self, trial: Trial | str | None = None, metric: str = "training_iteration", mode: str = "max"
    ) -> Checkpoint | None:
        """The latest checkpoint of a trial; without one of the best trial by `metric` (the longest)."""
        chosen = self.get_best_trial(metric, mode) if trial is None else self._trial(trial)
        return None if chosen is None else chosen.checkpoint

    def get_trial_checkpoints_paths(self, trial: Trial | str, metric: str | None = None) -> list[tuple[str, Any]]:
        """(path, value of the metric) of a trial's checkpoints, oldest first; None where it was not reported."""
        chosen = self._trial(trial)
        name = metric or self.default_metric or "training_iteration"
        pairs = ((chosen.open_checkpoint(record).path, lookup(record.metrics, name)) for record in chosen.checkpoints)
        return [(path, None if value is MISSING else value) for path, value in pairs]

    def best_checkpoints(self, trial: Trial) -> list[CheckpointRecord]:
        """Exactly the best N of a trial's checkpoints, by the run's settings, worst to best."""
        attribute = self.settings.get("checkpoint_score_attribute")
        order: ScoreOrder = "min" if self.settings.get("checkpoint_score_order") == "min" else "max"
        metric, literal = None if attribute == RECENCY else attribute, self.settings.get("checkpoint_score_literal")
        ranking = Ranking(self.settings.get("num_to_keep"), metric, order, None if literal is None else tuple(literal))
        return ranking.best(trial.ranked_checkpoints)

    def _publish(self, path: str | PathLike[str] | None, metric: str | None, mode: str | None) -> str:
        from tuner.analysis.experiment_page import write_page
        from tuner.analysis.file_target import page_at

        target = f"{self._path}/report.html" if path is None else page_at(fspath(path))
        return write_page(self._path, *self._objectives(metric, mode), target)

    def _framed(self, height: int, metric: str | None, mode: str | None) -> ExperimentFrame:
        from tuner.analysis.experiment_page import ExperimentFrame

        require(type(height) is int and height > 0, "height", height, "it is a number of pixels")
        return ExperimentFrame(self._path, *self._objectives(metric, mode), height)

    def _experiment(self) -> ExperimentAnalysis:
        return self

    def _by(self, metric: str | None, mode: str | None, scope: str = "last") -> tuple[str, str]:
        if metric is None and self.default_metric is None:
            raise SettingError("best by which metric? Give metric= and mode= here, or to the run")
        if mode is None and self.default_mode is None:
            raise SettingError(f"best {metric} is which? Give mode='min' or mode='max'")
        return scopes.check(metric or self.default_metric, mode or self.default_mode, scope)

    def _seen(self, metric: str | None, mode: str | None) -> PlotSource:
        from tuner.analysis.plot_source import PlotSource
        from tuner.analysis.study import study_of

        metrics, modes = self._objectives(metric, mode)
        if metric is not None:
            check_reported(metric, self._trials)
        name = parent_and_name(self._path)[1]

        def study() -> optuna.Study:
            if not metrics:
                raise SettingError("a study needs an objective: give metric= and mode=, here or to the run")
            return study_of(self._trials, metrics, modes, space=self.settings.get("space", {}), name=name)

        return PlotSource(self._trials, metrics, modes, functools.cache(study))

    def _objectives(self, metric: str | None, mode: str | None) -> tuple[list[str], list[str]]:
        metrics, modes = (
            [given] if isinstance(given, str) else list(given or ()) for given in (self._metric, self._mode)
        )
        modes = modes if len(modes) == len(metrics) else (modes or [None])[:1] * len(metrics)
        if metric is not None:
            of_run = dict(zip(metrics, modes, strict=True)).get(metric)
            metrics, modes = [metric], [of_run or self.default_mode]
        if mode is not None:
            modes = [mode] * len(metrics)
        for each, way in zip(metrics, modes, strict=True):
            scopes.check(each, way)
        return metrics, modes

    def _warn_once(self, text: str) -> None:
        """Every property about the best asks again: what is wrong is said the first time."""
        if text not in self._warned:
            self._warned.add(text)
            log.warning("%s", text)

    def _best_checkpoint(self, trial: Trial, metric: str, mode: str) -> Checkpoint | None:
        ranking = Ranking(1, metric, "min" if mode == "min" else "max")
        scored = [record for record in trial.ranked_checkpoints if score_of(record.metrics, metric) is not None]
        for best in ranking.best(scored):
            return trial.open_checkpoint(best)
        self._warn_once(f"{trial.name} has no checkpoint whose result has a number {metric!r}")
        return None

    def _trial(self, given: Trial | str) -> Trial:
        if not isinstance(given, (str, Path)):
            return given
        wanted = str(given)
        for trial in self._trials:
            if wanted in (trial.trial_id, trial.name, trial.path, trial.dirname):
                return trial
        raise SettingError(f"trial={wanted!r} is not accepted: no trial has that id, name or directory")

    def why_not(self, metric: str) -> str:
        """Why no trial is the best by a metric."""
        sample = next((trial.last_result for trial in self._trials if trial.iteration), None)
        if sample is None:
            return "no trial has reported anything"
        if any(score_of(trial.last_result, metric) is not None for trial in self._trials):
            return f"{metric!r} is NaN in all trials, or infinite and those were to be left out (filter_nan_and_inf)"
        if metric in sample:
            return f"no trial has reported a number {metric!r}: it is {sample[metric]!r:.60}"
        near = ", ".join(nearest_keys(sample, metric))
        return f"no trial has reported a number {metric!r}; reported, nearest first: {near}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._path!r}, {len(self._trials)} trials)"

    def _repr_html_(self) -> str:
        from tuner.analysis.notebook_table import overview

        return overview(self)
