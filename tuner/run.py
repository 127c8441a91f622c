"""`tune.run`: the classic call. It translates Ray Tune's arguments into a `Spec` and runs it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from trainables.config import Budget, CheckpointConfig, FailureConfig, RunConfig, SyncConfig, parse_score_attr
from trainables.tunable_trainer import TunableTrainer
from trainables.user_frames import from_the_call
from trainables.validation import nearest_name, no_effect
from tuner.analysis import ExperimentAnalysis
from tuner.driver.build import execute
from tuner.error import SettingError, TrialsFailedError
from tuner.experiment.definition import Experiment
from tuner.resume_config import ResumeConfig
from tuner.search.experiment_spec import ExperimentSpec
from tuner.search.pickled_state import copied
from tuner.spec import Giver, Spec, given_by

NO_EFFECT = {
    "server_port": "there is no REST server",
    "queue_trials": "trials always wait for room",
    "trial_executor": "use executor=",
    "storage_filesystem": "use storage_path with a URI",
    "_experiment_checkpoint_dir": "the journal lies in the experiment's directory",
    "_remote": "the driver runs where it is called",
    "_remote_string_queue": "the driver runs where it is called",
    "_entrypoint": "nothing is reported to anybody",
    "_tuner_api": "nothing is reported to anybody",
}
"""Ray's arguments whose subject does not exist here: accepted with one warning."""


@from_the_call
def run(
    run_or_experiment: Any,
    *,
    name: str | None = None,
    metric: str | Sequence[str] | None = None,
    mode: str | Sequence[str] | None = None,
    stop: Any = None,
    time_budget_s: Any = None,
    config: Mapping[str, Any] | Callable[..., Any] | None = None,
    resources_per_trial: Any = None,
    num_samples: int = 1,
    storage_path: str | Path | None = None,
    local_dir: str | Path | None = None,
    search_alg: Any = None,
    scheduler: Any = None,
    checkpoint_config: CheckpointConfig | None = None,
    keep_checkpoints_num: int | None = None,
    checkpoint_score_attr: str | None = None,
    checkpoint_freq: int | str = 0,
    checkpoint_at_end: bool = False,
    verbose: int | None = None,
    progress_reporter: Any = None,
    log_to_file: bool | str | tuple[str, str] = False,
    trial_name_creator: Callable[[Any], str] | None = None,
    trial_dirname_creator: Callable[[Any], str] | None = None,
    chdir_to_trial_dir: bool | None = None,
    sync_config: SyncConfig | None = None,
    export_formats: Sequence[str] | None = None,
    max_failures: int = 0,
    fail_fast: bool | str = False,
    restore: Any = None,
    resume: bool | str | None = None,
    resume_config: ResumeConfig | None = None,
    raise_on_failed_trial: bool = True,
    callbacks: Sequence[Any] | None = None,
    max_concurrent_trials: int | None = None,
    reuse_actors: bool | None = False,
    reuse: Any = None,
    overwrite: bool = False,
    takeover: bool = False,
    seed: int | None = None,
    trial_timeout_s: float | None = None,
    checkpoint_budget: str | int | Budget | None = None,
    executor: Any = None,
    on_end: str | Sequence[str] | None = None,
    on_failure: str | Sequence[str] | None = None,
    ui: bool | None = None,
    **others: Any,
) -> ExperimentAnalysis:
    """Run an experiment and return its results.

    Trials run in processes of their own, as many at once as there is room for. Killed at any moment, the same call
    goes on with `resume="AUTO"`. See also "Output" below.

    Args:
        run_or_experiment: a function `f(config)`, a subclass of `tune.Trainable`, a registered name, a trainer, or an
            `Experiment` or a list of them, whose own arguments hold where these say something else.
        name: of the experiment, and of its directory under `storage_path`. None: the trainable's name and the date
            (with `resume="AUTO"` one without a date, so that the same script finds its run again).
        metric, mode: what searcher, scheduler and "best" go by: the name of a reported value, nested as "eval/auc",
            and "min" or "max" (None: "max"). Lists of both for several objectives. metric=None: there is no best one. A
            metric that no result has ends the run, unless TUNE_DISABLE_STRICT_METRIC_CHECKING=1.
        stop: when a trial has done enough: {"training_iteration": 10, "accuracy": 0.9, "loss": tune.at_most(0.1)} (a
            number stops at or above it, whichever comes first), a function `(trial_id, result) -> bool`, a `Stopper`,
            or a list. None: trials end by themselves.
        time_budget_s: seconds, or a `timedelta`, after which the experiment ends early and stays resumable; None: no
            limit.
        config: the search space: a dict, also nested, of plain values, of domains such as `tune.uniform(0, 1)`, and of
            `tune.grid_search([...])`, or a define-by-run function `f(trial)`. None: trials without parameters.
        resources_per_trial: {"cpu": 2, "gpu": 0.5, "my_resource": 1}, a `PlacementGroupFactory`, or a function of the
            config that returns such; cores, GPUs, and units of your own. None: one CPU.
        num_samples: how often the space is sampled, each time with every combination of its grids; -1: without end.
        storage_path: the directory that holds experiments, or a URI ("s3://bucket/runs"). None: TUNE_RESULT_DIR, else
            `~/tuner_results`.
        local_dir: the older name of `storage_path`; None: not given.
        search_alg: what proposes configs: a `Searcher`, or its name ("auto", to begin with; "optuna"); None: grid and
            random search.
        scheduler: what stops, pauses or changes trials by their results: a `TrialScheduler`, or its name ("asha");
            None: none does (FIFO).
        checkpoint_config: a `CheckpointConfig`: which checkpoints are made, and which stay. None: all stay.
        keep_checkpoints_num: the same as its `num_to_keep`: the best so many of each trial stay, and its latest.
            None: all.
        checkpoint_score_attr: what ranks them: "auc" or "max-auc" (higher is better), "min-loss". A metric that is
            itself called "max-auc" comes first. None: recency.
        checkpoint_freq: class trainables save every so many iterations; 0: not by themselves; "auto": when what would
            be lost, by the interruptions that the run has seen, costs more than a save (at most 2 % of the time while
            there were none). Functions decide themselves: see `should_save()`.
        checkpoint_at_end: class trainables save once more when they end.
        verbose: how much is printed; see "Output". None: 2.
        progress_reporter: what shows the run instead of the built-in view: a `CLIReporter(...)` or another
            `ProgressReporter`. None: the view that fits the terminal, notebook or file.
        log_to_file: the names of the files that get what a trial prints, in the trial's directory: True and False:
            "stdout" and "stderr"; "NAME": both go there; ("OUT", "ERR").
        trial_name_creator, trial_dirname_creator: functions `(trial) -> str` that name trials, and their directories.
            None: `<trainable>_<id>`.
        chdir_to_trial_dir: whether a trial works in its own directory, so that relative paths lead there. None: it
            does, unless TUNE_CHDIR_TO_TRIAL_DIR=0.
        sync_config: a `SyncConfig`: where copies go, and how. None: there are none.
        export_formats: names that a class's `_export_model` gets, with its directory, when a trial has ended. None:
            none.
        max_failures: how often a trial goes on from its newest checkpoint after it failed; -1: always.
        fail_fast: True: the first failure ends the experiment; "raise": and what the trial raised is raised.
        restore: what to start from: a checkpoint (a path, a URI, "first@best", a `Checkpoint`) for every trial, or an
            experiment (its path or URI) that is continued under this name. None: from nothing.
        resume: False: start; "AUTO": continue the experiment of that name, or start it; True, "LOCAL", "REMOTE":
            continue the one that is here, or in the copy; "PROMPT": ask; "ERRORED_ONLY": only trials that failed.
            "+ERRORED" and "+RESTART_ERRORED" behind a word take up failed trials too. None: as TUNE_EXISTING says,
            else False.
        resume_config: a `ResumeConfig`, instead of `resume`: which trials go on. None: as `resume` says.
        raise_on_failed_trial: raise `TrialsFailedError` at the end if a trial failed; False: see `analysis.trials`.
        callbacks: a list of `Callback` objects, besides those that write result.json, progress.csv and TensorBoard's
            files. None: only these.
        max_concurrent_trials: at most so many at once. None and 0: as many as fit.
        reuse_actors: True: the process of an attempt that ended well goes on with the next one, of this trial or of
            another, if that is a class whose `reset_config(new_config)` returns True; `setup` is not called again.
        reuse: an earlier experiment (its path, name or URI, an `ExperimentAnalysis`, a `ResultGrid`), or several, as a
            list: a trial whose config was trained there, by the same code, begins with its results and a copy of its
            newest checkpoint, verified, instead of from nothing (docs/reuse.md). None: none.
        overwrite: True: an experiment of that name is replaced.
        takeover: True: do not wait (60 s) for the heartbeat of an owner on another host to go stale.
        seed: of searcher and trials, a whole number. None: one is drawn and recorded.
        trial_timeout_s: seconds of wall time after which an attempt of a trial is ended. None: no limit.
        checkpoint_budget: bytes, "50GB", or a `Budget(bytes, top_k)`, for all checkpoints together. None: no limit.
        executor: None or "local" (processes on this machine), "inline" (this process, for debuggers), "ray" (the nodes
            of the Ray cluster that runs here), "slurm" (jobs of Slurm, submitted as trials wait), or an `Executor`, as
            `RayExecutor(address=...)` and `SlurmExecutor(partition=...)`.
        on_end, on_failure: a command (a text for the shell, or a list of words) or an http(s) URL that is told, in
            JSON, when the run has ended, and when a trial has failed for good (docs/hooks.md). Never stored: a resume
            has those that it is given anew. No call holds up the run, or lasts longer than TUNE_HOOK_TIMEOUT_S (10 s).
            None: nobody is told.
        ui: True: a live page of the run, whose address is printed at the start (extra: ui); `tuner ui` shows it later
            too. None: as TUNE_UI says, else False.
        others: Ray's further arguments: `loggers`, and those that have no effect here, of which a warning tells.

    A trainer's own `run_config` holds where an argument has its default.

    Output:
        The driver prints to standard output: `verbose=1` the state of the run (a live view in a terminal or notebook,
        a line every 30 s elsewhere), failures and a table at the end; 2 also a line for each trial that ends, where
        there is no live view; 3 also one for each start, result and checkpoint, and tracebacks whole; 0 nothing but the
        address that `ui=True` asks for. Its warnings are in `<storage_path>/<name>/driver.log`, whatever `verbose` is.
        What trials print never comes to the terminal, but with `executor="inline"`: it is in the files that
        `log_to_file` names, beside `result.json`, `progress.csv` and, of one that failed, `error.txt`.

    Returns:
        `ExperimentAnalysis`: trials, results, best checkpoint.

    Raises:
        SettingError: a setting is not accepted; nothing was touched.
        ExperimentExistsError: the name is taken and `resume` is False.
        ResumeError: there is nothing to resume, or it does not fit.
        MetricMissingError: `metric`, or one that a plug-in goes by, never comes, or nothing is reported; resumable.
        TrialsFailedError: a trial failed; `.analysis` holds all results.
        Interrupted: after Ctrl-C; `.analysis` holds what there is, and the same call continues. SIGTERM raises
            SystemExit(143), SIGHUP SystemExit(129).
        SyncError: all is done, and something did not reach the copy; `.analysis` holds all results.

    Example:
        >>> analysis = tune.run(train, config={"lr": tune.loguniform(1e-4, 1e-1)}, metric="loss", mode="min")
        >>> analysis.best_config
    """
    given = dict(locals())  # first of all: the arguments, by name
    _check_others(others, run)
    if isinstance(run_or_experiment, (ExperimentSpec, list, tuple)):
        known = inspect.signature(run).parameters
        asked = {name: value for name, value in given.items() if name in known and value is not known[name].default}
        del asked["run_or_experiment"], asked["others"]
        return _run_each(Experiment.several(run_or_experiment), {**asked, **others})
    own = run_or_experiment.run_config if isinstance(run_or_experiment, TunableTrainer) else RunConfig()
    checkpointing: Any = checkpoint_config or own.checkpoint_config
    if keep_checkpoints_num is not None:
        checkpointing = replace(checkpointing, num_to_keep=keep_checkpoints_num)
    if checkpoint_score_attr is not None:
        _, order = parse_score_attr(checkpoint_score_attr)
        score = {"checkpoint_score_attribute": checkpoint_score_attr, "checkpoint_score_order": order}
        checkpointing = replace(checkpointing, **score)
    if checkpoint_freq:
        checkpointing = replace(checkpointing, checkpoint_frequency=checkpoint_freq)
    if checkpoint_at_end:
        checkpointing = replace(checkpointing, checkpoint_at_end=checkpoint_at_end)
    if storage_path is not None and local_dir is not None and str(storage_path) != str(local_dir):
        raise SettingError(f"storage_path={storage_path!r} and local_dir={local_dir!r} mean the same; give one of them")
    chosen: Any = resume
    if resume_config is not None:
        if resume:
            raise SettingError("give either resume= or resume_config=")
        chosen = resume_config.choice
    values = {each.name: given[each.name] for each in fields(Spec) if each.name in given}
    defaults = inspect.signature(run).parameters
    for setting in given_by(Giver.RUN):
        if setting not in defaults or values[setting] is defaults[setting].default:
            values[setting] = getattr(own, setting)
    failing = FailureConfig(max_failures=max_failures, fail_fast=fail_fast)
    places = (storage_path, local_dir, own.storage_path, own.local_dir)
    values |= {
        "callbacks": _with_loggers(values["callbacks"], others.get("loggers")),
        "trainable": run_or_experiment,
        "param_space": config,
        "checkpoint_config": checkpointing,
        "failure_config": own.failure_config if failing == FailureConfig() else failing,
        "storage_path": next((place for place in places if place is not None), None),
        "resume": chosen,
    }
    return execute(Spec(**values))


def _with_loggers(callbacks: Sequence[Any] | None, loggers: Sequence[Any] | None) -> Sequence[Any] | None:
    """The callbacks, and Ray's older loggers as such; DEFAULT_LOGGERS may be in both."""
    if not loggers:
        return callbacks
    from tuner.logger.legacy import as_callbacks

    return [*(callbacks or ()), *as_callbacks(loggers)]


def _check_others(others: Mapping[str, Any], function: Callable[..., Any]) -> None:
    for key in others.keys() - {"loggers"}:
        if key in NO_EFFECT:
            no_effect(key, NO_EFFECT[key])
            continue
        for owner, setting in _owners().items():
            if key in inspect.signature(owner).parameters:
                given = f"{setting}={owner.__name__}({key}=...)" if setting else f"Tuner({key}=...)"
                raise SettingError(f"tune.run has no argument {key!r}; it belongs to another: {given}")
        known = [name for name in inspect.signature(function).parameters if name != "others"]
        near = nearest_name(key, known)
        hint = f"; did you mean {near!r}?" if near else ""
        raise SettingError(f"tune.run has no argument {key!r}{hint}")


def _owners() -> dict[Any, str]:
    """Whose arguments are taken for `tune.run`'s -> the argument of `tune.run` that takes such a one."""
    from tuner.schedulers import ASHAScheduler, PopulationBasedTraining
    from tuner.search import BasicVariantGenerator
    from tuner.tuner import Tuner

    return {
        CheckpointConfig: "checkpoint_config",
        SyncConfig: "sync_config",
        BasicVariantGenerator: "search_alg",
        ASHAScheduler: "scheduler",
        PopulationBasedTraining: "scheduler",
        Tuner: "",
    }


@from_the_call
def run_experiments(experiments: Any, concurrent: bool = True, **arguments: Any) -> list[Any]:
    """Run one or several experiments, one after another, and return all their trials.

    Args:
        experiments: an `Experiment`, a list of them, or `{name: {"run": trainable, **arguments_of_run}}`.
        concurrent: accepted, without effect: the trials of one experiment run in parallel.
        arguments: arguments of `tune.run` for those that do not say something else.

    Raises as `run`, TrialsFailedError after the last of them; the same call continues, with `resume="AUTO"`, where one
    was interrupted.

    Example:
        >>> trials = tune.run_experiments([tune.Experiment("a", train), tune.Experiment("b", train)], resume="AUTO")
    """
    given = Experiment.several(experiments)
    return list(_run_each(given, arguments).trials) if given else []


_OF_ONE = ("search_alg", "scheduler", "stop")
"""What learns from the trials of an experiment: each of several has a copy of its own, so that each can be resumed."""


def _run_each(experiments: Sequence[ExperimentSpec], asked: Mapping[str, Any]) -> ExperimentAnalysis:
    """Run experiments one after another; of several the analysis has the trials of all."""
    if not experiments:
        raise SettingError("run_or_experiment=[] is not accepted; there is nothing to run")
    each = [{**asked, "name": one.name, **one.arguments} for one in experiments]
    if len(each) == 1:
        return run(experiments[0].run, **each[0])
    for arguments in each:
        arguments.update({name: copied(arguments[name]) for name in _OF_ONE if name in arguments})
        if arguments.get("resume") is True:
            arguments["resume"] = "AUTO"  # those that had not begun begin
    analyses: list[ExperimentAnalysis] = []
    failed: list[TrialsFailedError] = []
    for one, arguments in zip(experiments, each, strict=True):
        try:
            analyses.append(run(one.run, **arguments))
        except TrialsFailedError as error:
            failed.append(error)
            analyses.append(error.analysis)
    first, trials = analyses[0], [trial for analysis in analyses for trial in analysis.trials]
    together = ExperimentAnalysis(
        first.experiment_path,
        trials=trials,
        settings=first.settings,
        metric=asked.get("metric"),
        mode=asked.get("mode"),
    )
    if failed:
        raise TrialsFailedError("\n".join(map(str, failed)), together) from failed[0]
    return together
