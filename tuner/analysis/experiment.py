"""`ExperimentAnalysis`: the results of a run, or of an experiment that lies somewhere."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables import tagged
from trainables.checkpoint import Checkpoint
from trainables.config import RECENCY, ScoreOrder
from trainables.metrics import MISSING, lookup, nearest_keys, score_of
from trainables.result_history import flatten, frame
from trainables.store.retention import Ranking, rank_key
from tuner.analysis import scopes
from tuner.error import SettingError
from tuner.experiment.paths import ExperimentPaths, as_local_path, is_elsewhere
from tuner.experiment.reader import load_state, read_settings
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord

if TYPE_CHECKING:
    import optuna
    import pandas

    from tuner.analysis.plots import PlotSource

log = logging.getLogger(__name__)


class ExperimentAnalysis:
    """The trials of an experiment and what they came to.

    Args:
        experiment_checkpoint_path: the experiment's directory: a path, with ~, file://, or a place elsewhere
            ("s3://bucket/runs/mine"), whose journal and histories are brought here now, a checkpoint when it is used.
        trials: its trials; None: read from the directory.
        metric, mode: what is best (`default_metric`, `default_mode` are Ray's names for them); None: as the run had it,
            or its searcher.
        settings: what experiment.json holds; None: read from it.

    Nothing is unpickled, and the history of a trial is read when it is asked for. Raises ExperimentNotFoundError if
    there is no experiment.

    Example:
        >>> analysis = tune.ExperimentAnalysis("~/tuner_results/my_run")
        >>> analysis.get_best_config("loss", "min")
    """

    def __init__(
        self,
        experiment_checkpoint_path: str | PathLike[str],
        *,
        trials: Sequence[Trial] | None = None,
        metric: Any = None,
        mode: Any = None,
        settings: Mapping[str, Any] | None = None,
        default_metric: str | None = None,
        default_mode: str | None = None,
        storage_filesystem: Any = None,
    ) -> None:
        if is_elsewhere(experiment_checkpoint_path):
            from tuner.syncer import views

            self._path = fspath(experiment_checkpoint_path).rstrip("/")
            found, state = views.load(self._path)
            self.settings: dict[str, Any] = dict(found if settings is None else settings)
            self._trials: Sequence[Trial] = state.trials if trials is None else trials
        else:
            root = as_local_path(experiment_checkpoint_path)
            paths = ExperimentPaths(root.parent if root.is_file() else root)
            self._path = str(paths.root)
            self.settings = dict(read_settings(paths) if settings is None else settings)
            self._trials = load_state(paths).trials if trials is None else trials
        goal = self.settings.get("searches_for") or {}
        self._metric = metric or default_metric or self.settings.get("metric") or goal.get("metric")
        of_searcher = goal.get("mode") if self._metric == goal.get("metric") else None
        self._mode = mode or default_mode or self.settings.get("mode") or of_searcher
        self.default_metric, self.default_mode = _single(self._metric), _single(self._mode)
        self._frames: dict[str, pandas.DataFrame] | None = None
        self._warned: set[str] = set()

    # --- what there is ------------------------------------------------------------------------------

    @property
    def experiment_path(self) -> str:
        """The experiment's directory, or its URI."""
        return self._path

    @property
    def trials(self) -> Sequence[Trial]:
        """All trials, in order of creation."""
        return self._trials

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """{trial_id: last result}."""
        return {trial.trial_id: last_result(trial) for trial in self._trials}

    @property
    def results_df(self) -> pandas.DataFrame:
        """The last results as a frame, one row per trial, by trial_id."""
        rows = [{**flatten(last_result(trial)), "trial_id": trial.trial_id} for trial in self._trials]
        made = frame(rows)
        return made.set_index("trial_id") if rows else made

    @property
    def trial_dataframes(self) -> dict[str, pandas.DataFrame]:
        """{directory: frame of all results} of every trial; read once."""
        if self._frames is None:
            self._frames = {trial.path: frame(scopes.history(trial)) for trial in self._trials}
        return self._frames

    def fetch_trial_dataframes(self) -> dict[str, pandas.DataFrame]:
        """`trial_dataframes`, read anew."""
        self._frames = None
        return self.trial_dataframes

    def dataframe(self, metric: str | None = None, mode: str | None = None) -> pandas.DataFrame:
        """One row per trial that reported, with its config as columns "config/..." and its directory as "logdir".

        Args:
            metric, mode: the row of the best value of this metric; without a mode it is the last row.
        """
        if mode is not None:
            metric, mode = scopes.check(metric, mode)
        rows = []
        for trial in self._trials:
            row = _row(trial, metric, mode)
            if row:
                config = flatten({"config": config_of(trial)})
                rows.append({**flatten(row), **config, "logdir": trial.path})
        return frame(rows)

    def get_all_configs(self, prefix: bool = False) -> dict[str, dict[str, Any]]:
        """{directory: config} of every trial; with `prefix` flat, as "config/..."."""
        configs = {trial.path: config_of(trial) for trial in self._trials}
        return {path: flatten({"config": config}) for path, config in configs.items()} if prefix else configs

    def stats(self) -> dict[str, Any]:
        """When the run started and ended, in seconds since the epoch, and how many trials there are of each status."""
        counts: dict[str, int] = {}
        for trial in self._trials:
            counts[trial.status] = counts.get(trial.status, 0) + 1
        starts = [trial.started_at for trial in self._trials if trial.started_at is not None]
        ends = [trial.ended_at for trial in self._trials if trial.ended_at is not None]
        return {"start_time": min(starts, default=None), "end_time": max(ends, default=None), "trials": counts}

    def runner_data(self) -> dict[str, Any]:
        """The settings that the experiment was started with."""
        return dict(self.settings)

    # --- the best -----------------------------------------------------------------------------------

    @property
    def best_trial(self) -> Trial | None:
        """The trial with the best last result, by the run's metric."""
        return self.get_best_trial()

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
        return None if trial is None else frame(scopes.history(trial))

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
        """The config of the best trial."""
        trial = self.get_best_trial(metric, mode, scope)
        return None if trial is None else trial.config

    def get_best_logdir(self, metric: str | None = None, mode: str | None = None, scope: str = "last") -> str | None:
        """The directory of the best trial."""
        trial = self.get_best_trial(metric, mode, scope)
        return None if trial is None else trial.path

    # --- checkpoints --------------------------------------------------------------------------------

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
        metric = None if attribute == RECENCY else attribute
        return Ranking(self.settings.get("num_to_keep"), metric, order).best(trial.own_checkpoints)

    # --- to look at ---------------------------------------------------------------------------------

    @property
    def study(self) -> optuna.Study:
        """The experiment as an `optuna.Study` in memory: all trials with their domains, values, curves and states.

        Needs a metric and a mode: the run's, its searcher's, or those given here. `tuner.analysis.study.study_of` says
        what becomes what.
        """
        return self._seen(None, None).study()

    def plot(
        self,
        kind: str | None = None,
        *,
        path: str | PathLike[str] | None = None,
        metric: str | None = None,
        mode: str | None = None,
    ) -> Any:
        """Show the experiment: a plotly figure of one kind, or {name: figure} of all that show something.

        Args:
            kind: "curves" (or "learning_curves"), "parallel", "importances", "contour", "rank", "pareto", "timeline",
                "schedule" (what exploits changed); None: all.
            path: also written there: an interactive .html, or .png, .svg, .pdf, drawn by a Chromium of this machine; of
                all kinds one .html page, or a directory for a file each.
            metric, mode: default: the run's; of several objectives a kind that is about one takes the first.

        Raises SettingError for what cannot be shown, with the reason; MissingExtraError (`pip install "tuner[plot]"`).
        """
        from tuner.analysis import report

        return report.plot(self._seen(metric, mode), kind, path)

    def report(
        self, path: str | PathLike[str] | None = None, *, metric: str | None = None, mode: str | None = None
    ) -> str:
        """Write one HTML page with everything, which needs no network, and return its path or URI.

        Args:
            path: a file or a URI; None: `report.html` in the experiment.
            metric, mode: default: the run's.
        """
        from tuner.analysis import report

        target = f"{self._path}/report.html" if path is None else fspath(path)
        seen = self._seen(metric, mode)
        counts = ", ".join(f"{number} {status}" for status, number in self.stats()["trials"].items())
        facts: dict[str, Any] = {"experiment": self._path, "trials": counts}
        facts["metric"] = ", ".join(f"{name} ({way})" for name, way in zip(seen.metrics, seen.modes, strict=True))
        facts |= {name: self.settings.get(name) for name in ("created", "trainable", "searcher", "scheduler", "stop")}
        said = {name: value for name, value in facts.items() if value}
        return report.publish(seen, said, self._path.rpartition("/")[2], target)

    # --- inside -------------------------------------------------------------------------------------

    def _by(self, metric: str | None, mode: str | None, scope: str = "last") -> tuple[str, str]:
        if metric is None and self.default_metric is None:
            raise SettingError("best by which metric? Give metric= and mode= here, or to the run")
        if mode is None and self.default_mode is None:
            raise SettingError(f"best {metric} is which? Give mode='min' or mode='max'")
        return scopes.check(metric or self.default_metric, mode or self.default_mode, scope)

    def _seen(self, metric: str | None, mode: str | None) -> PlotSource:
        from tuner.analysis.plots import PlotSource
        from tuner.analysis.study import study_of

        metrics, modes = self._objectives(metric, mode)
        name = self._path.rpartition("/")[2]

        def study() -> optuna.Study:
            if not metrics:
                raise SettingError("a study needs an objective: give metric= and mode=, here or to the run")
            return study_of(self._trials, metrics, modes, space=self.settings.get("space", {}), name=name)

        return PlotSource(self._trials, metrics, modes, functools.cache(study))

    def _objectives(self, metric: str | None, mode: str | None) -> tuple[list[str], list[str]]:
        metrics, modes = _listed(self._metric), _listed(self._mode)
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
        scored = [
            (rank_key(value, "max" if mode == "max" else "min", record.order), record)
            for record in trial.own_checkpoints
            if (value := score_of(record.metrics, metric)) is not None
        ]
        if not scored:
            self._warn_once(f"{trial.name} has no checkpoint whose result has a number {metric!r}")
            return None
        return trial.open_checkpoint(max(scored, key=lambda pair: pair[0])[1])

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
        near = ", ".join(nearest_keys(sample, metric))
        return f"no trial has reported a number {metric!r}; reported, nearest first: {near}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._path!r}, {len(self._trials)} trials)"


def config_of(trial: Trial) -> dict[str, Any]:
    """A trial's config for tables: what would have to be unpickled stays closed. `trial.config` opens it."""
    config = tagged.loads(bytes(trial.raw_config))
    return config if isinstance(config, dict) else {}


def last_result(trial: Trial) -> dict[str, Any]:
    """The last result with the config in it, as Ray has it; {} if there is none."""
    result = trial.last_result
    return {**result, "config": config_of(trial)} if result else {}


def _single(given: Any) -> str | None:
    """Of several metrics none is the default: who asks must say which."""
    if given is None or isinstance(given, str):
        return given
    return str(given[0]) if len(given) == 1 else None


def _listed(given: Any) -> list[Any]:
    return [] if given is None else [given] if isinstance(given, str) else list(given)


def _row(trial: Trial, metric: str | None, mode: str | None) -> dict[str, Any]:
    if metric is None or mode is None:
        return trial.last_result
    best: tuple[tuple[bool, float], dict[str, Any]] | None = None
    for row in scopes.history(trial):
        value = score_of(row, metric)
        if value is None:
            continue
        rank = (False, 0.0) if value != value else (True, -value if mode == "min" else value)
        if best is None or rank > best[0]:
            best = (rank, row)
    return trial.last_result if best is None else best[1]
