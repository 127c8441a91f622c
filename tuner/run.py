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
    checkpoint_freq: int = 0,
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
    overwrite: bool = False,
    takeover: bool = False,
    seed: int | None = None,
    trial_timeout_s: float | None = None,
    checkpoint_budget: str | int | Budget | None = None,
    executor: Any = None,
    on_end: str | Sequence[str] | None = None,
    on_failure: str | Sequence[str] | None = None,
    **others: Any,
) -> ExperimentAnalysis:
    """Run an experiment and return its results.

    Args:
        run_or_experiment: a function `f(config)`, a subclass of `tune.Trainable`, a registered name, a trainer, or an
            `Experiment` or a list of them, whose own arguments hold where these say something else.
        name: the experiment's directory under `storage_path`; without it one with the date is made (with
            `resume="AUTO"` a stable one).
        metric, mode: what searcher, scheduler and "best" go by; `mode` is "min" or "max" (default "max").
        stop: {"training_iteration": 10, "loss": tune.at_most(0.1)}, a function `(trial_id, result) -> bool`, a
            `Stopper`, or a list.
        time_budget_s: seconds after which the experiment ends early and stays resumable.
        config: the search space; plain values, domains such as `tune.uniform(0, 1)`, `tune.grid_search([...])`.
        resources_per_trial: {"cpu": 1, "gpu": 0.5, "my_resource": 2}; default one CPU.
        num_samples: how often the space is sampled; -1: without end.
        storage_path, local_dir: where experiments lie; default `~/tuner_results`.
        search_alg, scheduler: a `Searcher` and a `TrialScheduler`, or their names; None: grid and random, and FIFO.
        max_concurrent_trials: at most so many at once; None: as many as fit.
        checkpoint_config, sync_config: which checkpoints are made and stay, and where copies go.
        keep_checkpoints_num, checkpoint_score_attr, checkpoint_freq, checkpoint_at_end: how many checkpoints stay
            ("max-auc": higher is better, "min-loss": lower), and when class trainables save.
        verbose: 0 (prints nothing) to 3; None: the default view.
        progress_reporter: what shows the run instead.
        log_to_file: True, one file name, or (stdout's, stderr's); relative to the trial's directory.
        callbacks: a list of `Callback`.
        trial_name_creator, trial_dirname_creator: functions of a trial that name it and its directory.
        chdir_to_trial_dir: whether a trial works in its directory; None: it does, unless TUNE_CHDIR_TO_TRIAL_DIR=0.
        reuse_actors: True: the process of an attempt that ended well goes on with the next one, of this trial or of
            another, if that is a class whose `reset_config(new_config)` returns True; `setup` is not called again.
        export_formats: names that a class's `_export_model` gets, with its directory, when a trial has ended.
        max_failures: how often one trial is restarted from its newest checkpoint after it failed; -1: always.
        fail_fast: True: the first failure ends the experiment; "raise": and is raised.
        resume: False, True, "LOCAL", "REMOTE", "PROMPT", "AUTO", "ERRORED_ONLY", also with a suffix: "AUTO+ERRORED".
            True without a name: the newest experiment of that trainable. Where nothing is said TUNE_EXISTING holds.
        resume_config: which trials go on, as a `ResumeConfig`, instead of `resume`.
        restore: a checkpoint that the trials start from.
        raise_on_failed_trial: raise `TrialsFailedError` at the end if a trial failed.
        overwrite: replace an experiment of that name.
        takeover: do not wait for the heartbeat of an owner on another host.
        seed: of everything; without it one is drawn and recorded.
        trial_timeout_s: seconds of wall time after which an attempt is ended.
        checkpoint_budget: "50GB" or `Budget(bytes, top_k)` for all checkpoints of the experiment.
        executor: None (processes on this machine), "inline" (this process, for debuggers), "ray" (the nodes of the Ray
            cluster that runs here), or an `Executor`, as `RayExecutor(address=...)`.
        on_end, on_failure: a command (a text for the shell, or a list of words) or an http(s) URL that is told, in
            JSON, when the run has ended, and when a trial has failed for good (docs/hooks.md). Never stored: a resume
            has those that it is given anew. No call holds up the run, or lasts longer than TUNE_HOOK_TIMEOUT_S (10 s).

    A trainer's own `run_config` holds where an argument has its default.

    Returns:
        `ExperimentAnalysis`: trials, results, best checkpoint.

    Raises:
        SettingError: a setting is not accepted; nothing was touched.
        ExperimentExistsError: the name is taken and `resume` is False.
        ResumeError: there is nothing to resume, or it does not fit.
        TrialsFailedError: a trial failed; `.analysis` holds all results.

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
        attribute, order = parse_score_attr(checkpoint_score_attr)
        checkpointing = replace(checkpointing, checkpoint_score_attribute=attribute, checkpoint_score_order=order)
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
        experiments: an `Experiment`, a list of them, or {name: {"run": trainable, **arguments of tune.run}}.
        concurrent: accepted, without effect: the trials of one experiment run in parallel.
        arguments: arguments of `tune.run` for those that do not say something else.

    Raises as `run`, TrialsFailedError after the last of them; the same call continues, with `resume="AUTO"`, where one
    was interrupted.
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
