"""Assembles the parts of an experiment from what a `Spec` says, and runs it."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from trainables.checkpoint import Checkpoint
from trainables.group.group_trainable import GroupTrainable
from trainables.store import verify
from trainables.store.manifest import is_published
from trainables.validation import no_effect
from tuner import knobs
from tuner.analysis import ExperimentAnalysis
from tuner.callback import CallbackList
from tuner.clock import Clock, SystemClock
from tuner.driver.driver import Run
from tuner.driver.plugins import PluginSet, TrialSource
from tuner.error import (
    ExperimentExistsError,
    OwnedElsewhereError,
    SettingError,
)
from tuner.executors import default
from tuner.executors.base import Executor, Resources
from tuner.executors.local.pickled import check_picklable
from tuner.executors.pool import check_fits, parse_resources
from tuner.experiment.blobs import Blobs, trust
from tuner.experiment.driver_log import DriverLog
from tuner.experiment.naming import TrialNames
from tuner.experiment.paths import ExperimentPaths, as_local_path, is_elsewhere
from tuner.experiment.reader import is_experiment
from tuner.experiment.resume import Base
from tuner.logger import default_loggers
from tuner.logger.policy import PolicyFiles
from tuner.opening import fetch, temporary
from tuner.opening.restore import Inherited, inherit
from tuner.opening.start import Opened, open_experiment, prepare, recover, remove_fetched, take_over_place
from tuner.progress import default_reporter
from tuner.progress.live import Announcer
from tuner.schedulers import as_scheduler
from tuner.search import as_searcher
from tuner.spec import Spec
from tuner.stopper import as_stopper
from tuner.tools.prove.run_watch import redirect


def execute(spec: Spec) -> ExperimentAnalysis:
    """Run the experiment that `spec` describes, from wherever it stands, and return its results."""
    with DriverLog(SystemClock()).attached() as driver_log:
        return _logged(spec, driver_log)


def _logged(spec: Spec, driver_log: DriverLog) -> ExperimentAnalysis:
    redirect(spec)
    executor = default.chosen(spec.executor)
    clock = executor.clock
    fetch.check_apart(spec)
    inherited = inherit(spec, datetime.datetime.fromtimestamp(clock.time()))
    hosts = executor.remote_hosts
    try:
        if spec.name is not None:
            take_over_place(spec, spec.name)
        link = fetch.connect(spec, inline=executor.inline, wake=executor.wake, cluster=hosts is not None)
    except BaseException:
        _remove_inherited(inherited, spec, clock)
        raise
    try:
        return _execute(spec, executor, clock, link, inherited, driver_log)
    except BaseException:
        if link is not None:
            fetch.give_up(link)
        raise
    finally:
        if hosts is not None:
            hosts.release()  # also where nothing has begun
        if link is not None:
            link.close()


def _execute(
    spec: Spec,
    executor: Executor,
    clock: Clock,
    link: fetch.Link | None,
    inherited: Inherited | None,
    driver_log: DriverLog,
) -> ExperimentAnalysis:
    try:
        opened, plugins, reporter = _open(spec, executor, clock, link)
    except BaseException:
        _remove_inherited(inherited, spec, clock)
        raise
    opened.beginning.say = reporter.announce
    opened.beginning.undone = driver_log.let_go
    try:
        note = inherited.note if inherited is not None else opened.note
        if link is not None and link.fetched and link.remote is not None:
            note = f"resuming from {link.remote.uri}, brought to {opened.paths.root}"
        return Run(spec, opened, plugins, reporter, executor, clock, link, driver_log).run(note)
    except BaseException as error:
        if opened.beginning.replaces:
            error.add_note(f"no trial had started: the experiment that was at {opened.paths.root} before is back")
        opened.beginning.take_back()
        raise
    finally:
        opened.beginning.wait_elsewhere()
        if executor.remote_hosts is not None:
            executor.remote_hosts.release()
        temporary.remove(opened.temporary)
        opened.beginning.close()
        opened.ownership.release()


def _remove_inherited(inherited: Inherited | None, spec: Spec, clock: Clock) -> None:
    """After a refusal there is no more under the new name than before."""
    if inherited is not None:
        paths = ExperimentPaths(inherited.made[0])
        remove_fetched(spec, paths, clock, inherited.made, inherited.highest)


def _open(spec: Spec, executor: Executor, clock: Clock, link: fetch.Link | None) -> tuple[Opened, PluginSet, Announcer]:
    """Check all that can be checked by looking, then claim the experiment's directory."""
    now = datetime.datetime.fromtimestamp(clock.time())
    _fits(spec, executor)(parse_resources(spec.resources))
    strategy = spec.trainable.strategy if isinstance(spec.trainable, GroupTrainable) else ""
    if strategy.endswith("SPREAD") and executor.remote_hosts is None:
        no_effect(f"ScalingConfig(placement_strategy={strategy!r})", "trials run on this machine")
    spec.restore = _restore_path(spec.restore)
    if spec.overwrite and not executor.inline:
        check_picklable(spec.trainable)  # before the old experiment goes
    while True:
        paths = ExperimentPaths(spec.storage / spec.experiment_name(now))
        recover(spec, paths, clock)
        if link is not None:
            fetch.join(link, spec, paths, clock)
        try:
            prepared = prepare(spec, paths, clock)
            plugins = _plugins(spec, prepared.settings, paths, clock, executor)
            reporter = default_reporter(
                spec.progress_reporter, verbose=spec.verbose, metric=spec.metric, mode=spec.mode
            )
            if link is None:
                opened = open_experiment(spec, paths, prepared, clock=clock)
            else:
                opened = open_experiment(
                    spec,
                    paths,
                    prepared,
                    clock=clock,
                    above=link.highest,
                    confirm=partial(fetch.take, link, clock=clock),
                    fetched=link.made,
                )
            if opened is not None:
                return opened, plugins, reporter
        except (OwnedElsewhereError, ExperimentExistsError):
            if spec.name is not None or spec.resume_choice.base is Base.AUTO:
                raise
            # a driver that started in the same second was faster: the next name is free
        except BaseException:
            if link is not None:
                remove_fetched(spec, paths, clock, link.made, link.highest, aside=link.aside)
            raise


def _plugins(
    spec: Spec, settings: Mapping[str, Any], paths: ExperimentPaths, clock: Clock, executor: Executor
) -> PluginSet:
    """Searcher, scheduler, stopper and callbacks, ready to be asked; SettingError for what is none."""
    seed = int(settings["seed"])
    searcher = as_searcher(
        spec.search_alg, spec.param_space, num_samples=spec.num_samples, metric=spec.metric, mode=spec.mode, seed=seed
    )
    scheduler = as_scheduler(
        spec.scheduler,
        metric=spec.metric,
        mode=spec.mode,
        seed=seed,
        total_resources=executor.total(),
        trial_resources=parse_resources(spec.resources),
    )
    user = list(spec.callbacks)
    fits = _fits(spec, executor)
    policies = [PolicyFiles()] if getattr(scheduler, "log_config", True) else []
    trust(paths.root)
    callbacks = CallbackList([*user, *(default_loggers(user) if executor.directories else []), *policies])
    blobs = Blobs(paths.blobs)
    source = TrialSource(
        searcher,
        scheduler,
        space=spec.param_space,
        num_samples=spec.num_samples,
        prefix=str(settings["id"]),
        trainable_name=spec.trainable_name,
        names=TrialNames(spec.trial_name_creator, spec.trial_dirname_creator),
        blobs=blobs,
        resources_for=partial(_resources_for, spec, fits),
    )
    return PluginSet(
        searcher=searcher,
        scheduler=scheduler,
        stopper=as_stopper(spec.stop, clock=clock, strict=knobs.strict_metrics()),
        callbacks=callbacks,
        source=source,
        blobs=blobs,
        metric=spec.metric,
        strict_metrics=knobs.strict_metrics(),
        fits=fits,
    )


def _fits(spec: Spec, executor: Executor) -> Callable[[Resources], object]:
    """What raises ResourceError, naming what is asked for and what there is now, if that can never run there."""
    if executor.remote_hosts is not None:
        return partial(executor.remote_hosts.check_fits, trainable=spec.trainable)
    return partial(check_fits, total=executor.total())


def _resources_for(
    spec: Spec, check: Callable[[Resources], object], config: Mapping[str, Any]
) -> dict[str, float] | None:
    """What a trial asks for where its config says so; None: what all ask for. Raises ResourceError."""
    asked = None if spec.resources_for is None else spec.resources_for(config)
    if asked is None:
        return None
    amounts = parse_resources(asked)
    check(amounts)
    return amounts


def _restore_path(restore: Any) -> Path | Checkpoint | None:
    """`restore=` as the directory of a checkpoint that was looked at, or as a checkpoint in memory.

    One that lies elsewhere is fetched.
    """
    if isinstance(restore, (str, os.PathLike)) and is_elsewhere(restore):
        restore = Checkpoint(restore)
    if restore is None or (isinstance(restore, Checkpoint) and restore.in_memory):
        return restore
    path = as_local_path(restore.fetched().path if isinstance(restore, Checkpoint) else restore)
    if is_published(path):
        verify.check(path)
    elif not path.is_dir():
        raise SettingError(f"restore={str(restore)!r}: there is no checkpoint at {path}")
    elif (there := _no_checkpoint(path)) is not None:
        raise SettingError(f"restore={str(restore)!r} is no checkpoint: {path} {there}")
    return path


def _no_checkpoint(directory: Path) -> str | None:
    """What a directory without a manifest is, if it is known to be no user's checkpoint."""
    inside = sorted(entry for entry in directory.iterdir() if entry.is_dir())
    if not any(directory.iterdir()):
        return "is empty"
    if experiments := [entry.name for entry in inside if is_experiment(ExperimentPaths(entry))]:
        return f"holds experiments; give one of them: {', '.join(experiments[:10])}"
    if checkpoints := [entry.name for entry in inside if is_published(entry)]:
        return f"holds checkpoints; give one of them: {', '.join(checkpoints[:10])}"
    if (directory / "trial.json").exists():
        return "is the directory of a trial, which has no checkpoint"
    return None
