"""`Tuner`: the object form of `tune.run`; `fit()` runs, `Tuner.restore()` continues."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainables.config import RunConfig, SyncConfig
from trainables.places import parent_and_name
from trainables.transfer.s3_address import is_s3
from trainables.tunable_trainer import TunableTrainer
from trainables.user_frames import from_the_call
from trainables.validation import checked_arguments, checked_names, no_effect
from tuner.analysis import ResultGrid
from tuner.driver.build import execute
from tuner.error import ExperimentNotFoundError, SettingError, TuneError
from tuner.experiment import unpickling
from tuner.experiment.blobs import Blobs
from tuner.experiment.continuing import TUNER, resume_words
from tuner.experiment.paths import ExperimentPaths, as_local_path, is_elsewhere
from tuner.experiment.reader import is_experiment, read_settings
from tuner.experiment.resume import Base, Errored, Resume
from tuner.spec import Giver, Spec, given_by, stored_settings
from tuner.syncer import views


@checked_names
@dataclass
class TuneConfig:
    """How to search.

    Args:
        metric, mode: what searcher, scheduler and "best" go by: the name of a reported value, nested as "eval/auc", and
            "min" or "max" (None: "max"). Lists of both for several objectives. metric=None: there is no best one.
        search_alg: what proposes configs: a `Searcher`, or its name ("auto", to begin with; "optuna"); None: grid and
            random search.
        scheduler: what stops, pauses or changes trials: a `TrialScheduler`, or its name ("asha"); None: none does.
        num_samples: how often the space is sampled, each time with every combination of its grids; -1: without end.
        max_concurrent_trials: at most so many at once; None and 0: as many as fit.
        time_budget_s: seconds, or a `timedelta`, after which the experiment ends early and stays resumable; None: no
            limit.
        reuse_actors: True: the process of an attempt that ended well goes on with the next one, of this trial or of
            another, if that is a class whose `reset_config(new_config)` returns True; `setup` is not called again.
        reuse: an earlier experiment (its path, name or URI, an `ExperimentAnalysis`, a `ResultGrid`), or a list: trials
            whose config was trained there begin with those results and a copy of the newest checkpoint. None: none.
        trial_name_creator, trial_dirname_creator: functions `(trial) -> str` that name trials, and their directories.
            None: `<trainable>_<id>`.
        chdir_to_trial_dir: whether a trial works in its directory; None: it does, unless TUNE_CHDIR_TO_TRIAL_DIR=0.

    Example:
        >>> TuneConfig(metric="loss", mode="min", num_samples=20, scheduler="asha").num_samples
        20
    """

    metric: str | Sequence[str] | None = None
    mode: str | Sequence[str] | None = None
    search_alg: Any = None
    scheduler: Any = None
    num_samples: int = 1
    max_concurrent_trials: int | None = None
    time_budget_s: Any = None
    reuse_actors: bool | None = False
    reuse: Any = None
    trial_name_creator: Callable[[Any], str] | None = None
    trial_dirname_creator: Callable[[Any], str] | None = None
    chdir_to_trial_dir: bool | None = None


@checked_names
class Tuner:
    """A tuning job.

    Args:
        trainable: a function, a `tune.Trainable` subclass, a trainer, or a registered name; None is refused.
        param_space: the search space: a dict, also nested, of plain values, of domains such as `tune.uniform(0, 1)`,
            and of `tune.grid_search([...])`, or a define-by-run function `f(trial)`. None: trials without parameters.
            Dataclasses, namespaces and other mappings in it are searched too, and a trial gets them with values.
        tune_config: a `TuneConfig`: how to search. None: its defaults, which are one trial.
        run_config: a `RunConfig`: name, storage, checkpoints, failures, output; None: a trainer's own, else the
            defaults.
        _tuner_kwargs: accepted, without effect.

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
        _tuner_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if _tuner_kwargs:  # Ray's own examples give it
            no_effect(
                "_tuner_kwargs=", "fit() never raises for a failed trial; what else Ray took there is an argument"
            )
        for name, value, kind in (("tune_config", tune_config, TuneConfig), ("run_config", run_config, RunConfig)):
            if value is not None and not isinstance(value, kind):
                raise SettingError(f"{name}={value!r} is not accepted; accepted is a {kind.__name__}")
        if run_config is None and isinstance(trainable, TunableTrainer):
            run_config = trainable.run_config
        tune, run = tune_config or TuneConfig(), run_config or RunConfig()
        self._results: ResultGrid | None = None
        self._restored_from: str | Path | None = None
        given = {name: getattr(tune, name) for name in given_by(Giver.TUNE)}
        given |= {name: getattr(run, name) for name in given_by(Giver.RUN)}
        given["storage_path"] = run.storage_path if run.storage_path is not None else run.local_dir
        self._spec = Spec(
            trainable=trainable, param_space=param_space, raise_on_failed_trial=False, started_by=TUNER, **given
        )

    @from_the_call
    def fit(self) -> ResultGrid:
        """Run, or continue a restored experiment, and return the results of all trials.

        Raises SettingError, ExperimentExistsError or ResumeError before anything was touched. A failed trial does not
        raise: see `ResultGrid.errors`.
        """
        if self._results is not None and self._restored_from is None:
            words = resume_words(self._results.experiment_path, TUNER)
            raise TuneError(f"this Tuner has run already; {words} continues its experiment")
        self._results = ResultGrid(execute(self._spec))
        return self._results

    @from_the_call
    def get_results(self) -> ResultGrid:
        """The results of a finished or restored run, without running anything."""
        if self._results is None:
            if self._restored_from is None:
                raise TuneError("there are no results yet: call fit() first")
            self._results = ResultGrid(self._restored_from)
        return self._results

    @classmethod
    @from_the_call
    def can_restore(cls, path: str | Path, storage_filesystem: Any = None) -> bool:
        """True if there is an experiment at `path`, here or elsewhere ("s3://..."). Raises TransferError."""
        _check_path("can_restore", path)
        if not is_elsewhere(path):
            return is_experiment(ExperimentPaths(as_local_path(path)))
        with views.opened(os.fspath(path)) as remote:
            return remote.exists

    @classmethod
    @checked_arguments("Tuner.restore")
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
            path: the experiment's directory (also moved, copied or renamed since), or a place elsewhere
                ("s3://bucket/runs/mine"): it goes on there, with a copy in the cache here.
            trainable: the same trainable again: experiments do not store code.
            resume_unfinished, resume_errored, restart_errored: what becomes of which trials.
            param_space: the same space again; needed where it holds functions.
            tune_config, run_config: where not given, the stored settings hold, callbacks and `verbose` among them.
                `executor`, `progress_reporter`, `takeover` and `seed` are not stored: give a whole RunConfig for them.

        Raises ExperimentNotFoundError if there is none, SettingError without a trainable.
        """
        _check_path("restore", path)
        for name, value in (
            ("resume_unfinished", resume_unfinished),
            ("resume_errored", resume_errored),
            ("restart_errored", restart_errored),
        ):
            if not isinstance(value, bool):
                raise SettingError(f"Tuner.restore: {name}={value!r} is not accepted; accepted are True and False")
        if is_elsewhere(path):
            with views.view(os.fspath(path), views.stored_settings) as paths:
                stored, sync = _stored(paths)
            storage, name = parent_and_name(path)
            sync = replace(sync or SyncConfig(), upload_dir=None)  # it goes on where it was found
            if not is_s3(path):
                sync = replace(sync, s3_extra_args=None)
        else:
            paths = ExperimentPaths(as_local_path(path))
            stored, sync = _stored(paths)
            storage, name = str(paths.root.parent), paths.root.name
            if sync is not None and _is_there(sync.upload_dir, paths.root.parent):
                sync = replace(sync, upload_dir=None)  # the copy itself goes on
        if trainable is None:
            raise SettingError(
                f"Tuner.restore({str(path)!r}, trainable=...) needs the trainable again: experiments do not store code"
            )
        tune = tune_config or TuneConfig(
            metric=stored.get("metric"), mode=stored.get("mode"), num_samples=int(stored.get("num_samples", 1))
        )
        run = replace(run_config or RunConfig(sync_config=sync), name=name, storage_path=storage, local_dir=None)
        made = cls(trainable, param_space=param_space, tune_config=tune, run_config=run)
        made._restored_from = path if is_elsewhere(path) else paths.root
        if resume_errored and restart_errored:
            raise SettingError("resume_errored and restart_errored exclude each other")
        errored = Errored.RESTART if restart_errored else Errored.CONTINUE if resume_errored else Errored.SHOW
        inherits = {*(stored_settings(Giver.TUNE) if tune_config is None else ())}
        inherits |= {*(stored_settings(Giver.RUN) if run_config is None else ())}
        inherits |= {*(("param_space",) if param_space is None else ())}
        if sync is not None:  # it is needed before the others are read
            inherits.discard("sync_config")
        base = Base.REMOTE if is_elsewhere(path) else Base.LOCAL
        resume = Resume(base, errored, only_errored=not resume_unfinished)
        made._spec = replace(made._spec, resume=resume, inherits=tuple(inherits))
        return made


def fit_trainer(tuner: Tuner, trainer: type) -> ResultGrid:
    """Run the `Tuner` of a trainer's `fit()`: messages on how to continue name the trainer's own `restore`."""
    tuner._spec = replace(tuner._spec, started_by=trainer.__name__)
    return tuner.fit()


def _check_path(method: str, path: Any) -> None:
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise SettingError(
            f"Tuner.{method}: path={path!r} is not accepted; accepted is an experiment's path, or its URI like "
            '"s3://bucket/runs/mine"'
        )


def _is_there(upload_dir: str | os.PathLike[str] | None, directory: Path) -> bool:
    """Whether copies go to that very directory."""
    return upload_dir is not None and not is_elsewhere(upload_dir) and as_local_path(upload_dir) == directory


def _stored(paths: ExperimentPaths) -> tuple[dict[str, Any], SyncConfig | None]:
    """The settings of an experiment that is to be continued, and where its copies went, if that could be stored."""
    if not is_experiment(paths):
        raise ExperimentNotFoundError(f"there is no experiment at {paths.root}")
    stored = read_settings(paths)
    if not stored.get("settings_blob") or "sync_config" in stored.get("settings_lost", ()):
        return stored, None
    pickled = unpickling.loads(Blobs(paths.blobs).get(stored["settings_blob"])).get("sync_config")
    return stored, None if pickled is None else unpickling.loads(pickled)
