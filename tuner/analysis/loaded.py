"""`LoadedExperiment`: an experiment's trials and results, handed over by a run or read from storage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from trainables import tagged
from trainables.places import trim_slash
from trainables.result_history import flatten, frame
from tuner.analysis import scopes
from tuner.error import require
from tuner.experiment.finding import find_experiment
from tuner.experiment.forks import clones_after, raw_config_at
from tuner.experiment.outcome import ended_because
from tuner.experiment.paths import ExperimentPaths, as_local_path, is_elsewhere
from tuner.experiment.reader import follow, load_state, read_settings
from tuner.experiment.trial import Trial

if TYPE_CHECKING:
    import pandas


_living: WeakSet[LoadedExperiment] = WeakSet()


def moved(source: Path, target: Path, copies: tuple[str, str] | None) -> None:
    """An experiment has another directory now: results of it that this process holds are read from there.

    `copies`: where its copies were, and are.
    """
    for loaded in _living:
        if loaded._path == str(source):
            loaded._path = str(target)
            for trial in loaded._trials:
                trial.__dict__["root"] = target / trial.dirname
            if copies is not None:
                follow(loaded._trials, [copies])


class LoadedExperiment:
    """The trials of an experiment, their results as tables, and its settings."""

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

            self._path = trim_slash(experiment_checkpoint_path)
            found, state = views.load(self._path)
            self.settings: dict[str, Any] = dict(found if settings is None else settings)
            self._trials: Sequence[Trial] = state.trials if trials is None else trials
        else:
            root = as_local_path(experiment_checkpoint_path)
            if root.is_file():
                root = root.parent
            elif trials is None or settings is None:
                root = find_experiment(experiment_checkpoint_path)
            paths = ExperimentPaths(root)
            self._path = str(paths.root)
            self.settings = dict(read_settings(paths) if settings is None else settings)
            self._trials = load_state(paths).trials if trials is None else trials
        goal = self.settings.get("searches_for") or {}
        self._metric = metric or default_metric or self.settings.get("metric") or goal.get("metric")
        of_searcher = goal.get("mode") if self._metric == goal.get("metric") else None
        self._mode = mode or default_mode or self.settings.get("mode") or of_searcher
        self.default_metric, self.default_mode = _single(self._metric), _single(self._mode)
        _living.add(self)
        self._frames: dict[str, pandas.DataFrame] | None = None
        self._warned: set[str] = set()

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
        """The last results as a frame, one row per trial, by trial_id; in the column "end_reason" why it ended."""
        rows = [{**flatten(last_result(trial)), **_end(trial), "trial_id": trial.trial_id} for trial in self._trials]
        made = frame(rows)
        return made.set_index("trial_id") if rows else made

    @property
    def trial_dataframes(self) -> dict[str, pandas.DataFrame]:
        """{directory: frame of all results} of every trial, each with its config as "config/..."; read once."""
        if self._frames is None:
            self._frames = {trial.path: frame_of(self._trials, trial) for trial in self._trials}
        return self._frames

    def fetch_trial_dataframes(self) -> dict[str, pandas.DataFrame]:
        """`trial_dataframes`, read anew."""
        self._frames = None
        return self.trial_dataframes

    def dataframe(self, metric: str | None = None, mode: str | None = None) -> pandas.DataFrame:
        """One row per trial that reported: the config of that result is columns "config/...", the trial's directory
        "logdir", and "end_reason" says why it ended (empty: it has not).

        Args:
            metric, mode: the row of the best value of this metric; without a mode it is the last row.
        """
        if mode is not None:
            metric, mode = scopes.check(metric, mode)
        rows = []
        for trial in self._trials:
            row = trial.last_result if metric is None or mode is None else scopes.best_row(trial, metric, mode)
            if row:
                config = flatten({"config": config_of(trial, row.get("training_iteration"))})
                rows.append({**flatten(row), **config, **_end(trial), "logdir": trial.path})
        return frame(rows)

    def get_all_configs(self, prefix: bool = False) -> dict[str, dict[str, Any]]:
        """{directory: config} of every trial; with `prefix` flat, as "config/..."."""
        configs = {trial.path: config_of(trial) for trial in self._trials}
        return {path: flatten({"config": config}) for path, config in configs.items()} if prefix else configs

    def set_filetype(self, file_type: str | None = None) -> None:
        """Accepted without effect: histories are read from `result.json`, which has all that `progress.csv` has.

        Raises SettingError for what is neither "json" nor "csv" nor None.
        """
        require(file_type in (None, "json", "csv"), "file_type", file_type, "accepted are 'json', 'csv' and None")

    def stats(self) -> dict[str, Any]:
        """When the run started, was heard of last (`timestamp`) and ended; how many trials there are of each status.

        In seconds since the epoch.
        """
        counts = dict(Counter(trial.status for trial in self._trials))
        starts = [trial.started_at for trial in self._trials if trial.started_at is not None]
        ends = [trial.ended_at for trial in self._trials if trial.ended_at is not None]
        heard = max((trial.ended_at or trial.last_heard_of for trial in self._trials), default=0.0) or None
        ended = max(ends, default=None)
        return {"start_time": min(starts, default=None), "timestamp": heard, "end_time": ended, "trials": counts}

    def runner_data(self) -> dict[str, Any]:
        """The settings that the experiment was started with."""
        return dict(self.settings)


def config_of(trial: Trial, iteration: int | None = None) -> dict[str, Any]:
    """A trial's config for tables: what would have to be unpickled stays closed. `trial.config` opens it.

    Args:
        iteration: of the result that it was reported with; None: the config that the trial has now.
    """
    config = tagged.loads(bytes(trial.raw_config) if iteration is None else raw_config_at(trial, iteration))
    return config if isinstance(config, dict) else {}


def configs_of(trial: Trial) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Function that returns the config of a result of this trial; each config is read once."""
    known: dict[int, dict[str, Any]] = {}

    def of(result: Mapping[str, Any]) -> dict[str, Any]:
        iteration = result.get("training_iteration", trial.iteration)
        number = len(clones_after(trial, iteration))
        if number not in known:
            known[number] = config_of(trial, iteration)
        return known[number]

    return of


def frame_of(trials: Sequence[Trial], trial: Trial) -> pandas.DataFrame:
    """All results of a trial as a frame, with the config that each was reported with."""
    rows: list[dict[str, Any]] = []
    for owner, results in scopes.histories(trials, trial):
        config = configs_of(owner)
        rows += [result if "config" in result else {**result, "config": config(result)} for result in results]
    return frame(rows)


def last_result(trial: Trial) -> dict[str, Any]:
    """The last result with its config in it, as Ray has it; {} if there is none."""
    result = trial.last_result
    return {**result, "config": config_of(trial, trial.iteration)} if result else {}


def _end(trial: Trial) -> dict[str, str | None]:
    """A column of frames. A trial may report a metric of that name: then it is the metric."""
    return {} if "end_reason" in trial.last_result else {"end_reason": ended_because(trial)}


def _single(given: Any) -> str | None:
    """Of several metrics none is the default: who asks must say which."""
    if given is None or isinstance(given, str):
        return given
    return str(given[0]) if len(given) == 1 else None
