"""`Tuner`: the object form of `tune.run`; `fit()` runs, `Tuner.restore()` continues."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainables.config import CheckpointConfig, FailureConfig, RunConfig, SyncConfig
from tuner.analysis import ResultGrid
from tuner.assembly import execute
from tuner.error import ExperimentNotFoundError, SettingError, TuneError
from tuner.experiment.paths import ExperimentPaths, as_local_path
from tuner.experiment.reader import is_experiment, read_settings
from tuner.experiment.resume import Base, Errored, Resume
from tuner.opening import RUN_SETTINGS, TUNE_SETTINGS
from tuner.spec import Spec


@dataclass
class TuneConfig:
    """How to search.

    Args:
        metric, mode: what searcher, scheduler and "best" go by.
        search_alg: a `Searcher`; None: grid and random.
        scheduler: a `TrialScheduler`; None: FIFO.
        num_samples: how often the space is sampled; -1: without end.
        max_concurrent_trials: at most so many at once; None: as many as fit.
        time_budget_s: seconds after which the experiment ends early.
        reuse_actors: accepted, without effect.
        trial_name_creator, trial_dirname_creator: functions of a trial.
    """

    metric: str | Sequence[str] | None = None
    mode: str | Sequence[str] | None = None
    search_alg: Any = None
    scheduler: Any = None
    num_samples: int = 1
    max_concurrent_trials: int | None = None
    time_budget_s: Any = None
    reuse_actors: bool | None = None
    trial_name_creator: Callable[[Any], str] | None = None
    trial_dirname_creator: Callable[[Any], str] | None = None
    chdir_to_trial_dir: bool | None = None


class Tuner:
    """A tuning job.

    Args:
        trainable: a function, a `tune.Trainable` subclass, a trainer, or a registered name.
        param_space: the search space.
        tune_config: how to search.
        run_config: name, storage, checkpoints, failures, callbacks.

    Example:
        >>> grid = tune.Tuner(train, param_space={"lr": tune.grid_search([0.1, 0.01])}).fit()
        >>> grid.get_best_result("loss", "min").config
    """

    def __init__(
        self,
        trainable: Any = None,
        *,
        param_space: Mapping[str, Any] | Callable[..., Any] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
    ) -> None:
        for name, value, kind in (("tune_config", tune_config, TuneConfig), ("run_config", run_config, RunConfig)):
            if value is not None and not isinstance(value, kind):
                raise SettingError(f"{name}={value!r} is not accepted; accepted is a {kind.__name__}")
        tune, run = tune_config or TuneConfig(), run_config or RunConfig()
        self._results: ResultGrid | None = None
        self._restored = False
        self._spec = Spec(
            trainable=trainable,
            name=run.name,
            metric=tune.metric,
            mode=tune.mode,
            stop=run.stop,
            time_budget_s=tune.time_budget_s,
            param_space={} if param_space is None else param_space,
            num_samples=tune.num_samples,
            storage_path=run.storage_path if run.storage_path is not None else run.local_dir,
            search_alg=tune.search_alg,
            scheduler=tune.scheduler,
            checkpoint_config=run.checkpoint_config or CheckpointConfig(),
            failure_config=run.failure_config or FailureConfig(),
            sync_config=run.sync_config or SyncConfig(),
            checkpoint_budget=run.checkpoint_budget,
            verbose=run.verbose,
            progress_reporter=run.progress_reporter,
            log_to_file=run.log_to_file,
            trial_name_creator=tune.trial_name_creator,
            trial_dirname_creator=tune.trial_dirname_creator,
            callbacks=run.callbacks or (),
            max_concurrent_trials=tune.max_concurrent_trials,
            raise_on_failed_trial=False,
            seed=run.seed,
            overwrite=run.overwrite,
            takeover=run.takeover,
            trial_timeout_s=run.trial_timeout_s,
            executor=run.executor,
            chdir_to_trial_dir=tune.chdir_to_trial_dir,
        )

    def fit(self) -> ResultGrid:
        """Run, or continue a restored experiment, and return the results of all trials.

        Raises SettingError, ExperimentExistsError or ResumeError before anything was touched. A failed trial does not
        raise: see `ResultGrid.errors`.
        """
        if self._results is not None and not self._restored:
            raise TuneError("this Tuner has run already; Tuner.restore(path, trainable) continues its experiment")
        analysis = execute(self._spec)
        self._results = ResultGrid(analysis)
        return self._results

    def get_results(self) -> ResultGrid:
        """The results of a finished or restored run, without running anything."""
        if self._results is None:
            if not self._restored:
                raise TuneError("there are no results yet: call fit() first")
            from tuner.analysis import ExperimentAnalysis

            self._results = ResultGrid(ExperimentAnalysis(self._spec.storage / str(self._spec.name)))
        return self._results

    @classmethod
    def can_restore(cls, path: str | Path, storage_filesystem: Any = None) -> bool:
        """True if there is an experiment at `path`."""
        return is_experiment(ExperimentPaths(as_local_path(path)))

    @classmethod
    def restore(
        cls,
        path: str | Path,
        trainable: Any = None,
        *,
        resume_unfinished: bool = True,
        resume_errored: bool = False,
        restart_errored: bool = False,
        param_space: Mapping[str, Any] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
    ) -> Tuner:
        """A Tuner whose `fit()` continues the experiment at `path`.

        Args:
            path: the experiment's directory (also moved, copied or renamed since).
            trainable: the same trainable again: experiments do not store code.
            resume_unfinished, resume_errored, restart_errored: what becomes of which trials.
            param_space: the same space again; needed where it holds functions.
            tune_config, run_config: where not given, the stored settings hold; callbacks are always given again.

        Raises ExperimentNotFoundError if there is none, SettingError without a trainable.
        """
        root = as_local_path(path)
        paths = ExperimentPaths(root)
        if not is_experiment(paths):
            raise ExperimentNotFoundError(f"there is no experiment at {root}")
        if trainable is None:
            raise SettingError(
                f"Tuner.restore({str(path)!r}, trainable=...) needs the trainable again: experiments do not store code"
            )
        stored = read_settings(paths)
        tune = tune_config or TuneConfig(
            metric=stored.get("metric"), mode=stored.get("mode"), num_samples=int(stored.get("num_samples", 1))
        )
        run = replace(run_config or RunConfig(), name=root.name, storage_path=str(root.parent), local_dir=None)
        made = cls(trainable, param_space=param_space, tune_config=tune, run_config=run)
        made._restored = True
        made._spec = replace_resume(made._spec, resume_unfinished, resume_errored, restart_errored)
        made._spec.stored = (TUNE_SETTINGS if tune_config is None else ()) + (
            RUN_SETTINGS if run_config is None else ()
        )
        made._spec.space_given = param_space is not None
        return made


def replace_resume(spec: Spec, unfinished: bool, errored: bool, restart: bool) -> Spec:
    """The same spec, continuing."""
    if errored and restart:
        raise SettingError("resume_errored and restart_errored exclude each other")
    how = Errored.RESTART if restart else Errored.CONTINUE if errored else Errored.SHOW
    spec.resume_choice = Resume(Base.LOCAL, how, only_errored=not unfinished)
    return spec
