"""Assembles the parts of an experiment from what a `Spec` says, and runs it."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from trainables.addresses import address_in
from trainables.checkpoint import Checkpoint
from trainables.command.command import Command
from trainables.errors import InvalidSettingError
from trainables.group.group_trainable import GroupTrainable
from trainables.store import fs, verify
from trainables.store.manifest import is_published
from trainables.trainable import resets
from trainables.validation import no_effect
from tuner import knobs
from tuner.analysis import ExperimentAnalysis
from tuner.callback import CallbackList
from tuner.clock import Clock, SystemClock
from tuner.compat import variables
from tuner.driver.driver import Run
from tuner.driver.hooks import RunHooks, check_hooks
from tuner.driver.jobs import Beginnings
from tuner.driver.live_page import wants_page
from tuner.driver.plugins import PluginSet, TrialSource
from tuner.driver.plugins.named_callbacks import named_callbacks
from tuner.driver.plugins.used_objects import refuse_used
from tuner.driver.signals import Signals
from tuner.error import ExperimentExistsError, OwnedElsewhereError, SettingError
from tuner.executors import default
from tuner.executors.base import Executor, Resources
from tuner.executors.local.pickled import check_picklable
from tuner.executors.local.process_tree import fill_standard_descriptors
from tuner.executors.pool import check_fits, declared
from tuner.experiment.blobs import Blobs, trust
from tuner.experiment.driver_log import DriverLog
from tuner.experiment.naming import TrialNames
from tuner.experiment.paths import ExperimentPaths, as_local_path, is_elsewhere
from tuner.experiment.reader import is_experiment
from tuner.experiment.resume import Base
from tuner.logger import default_loggers
from tuner.logger.policy import PolicyFiles
from tuner.opening import again
from tuner.opening.apply import OwnedExperiment, apply
from tuner.opening.decide import Action
from tuner.opening.earlier import ReadEarlier, read_earlier
from tuner.opening.moving_aside import followed
from tuner.opening.prepared_start import prepare
from tuner.opening.reach import ReplicaConnection, check_apart, connect
from tuner.opening.restore import RestoreSource, settled
from tuner.opening.settings import Settings
from tuner.progress import default_reporter
from tuner.progress.announcer import Announcer
from tuner.resources import parse_resources
from tuner.schedulers import as_scheduler, default_scheduler
from tuner.search import as_searcher
from tuner.search.containers import close
from tuner.spec import Spec
from tuner.stopper import as_stopper

Change = Callable[[Spec], Spec]
_changes: list[Change] = []


def change_every_run(change: Change) -> None:
    """Have every run of this process be what `change` makes of it: for programs that run the scripts of others."""
    _changes.append(change)


def execute(spec: Spec) -> ExperimentAnalysis:
    """Run the experiment that `spec` describes, from wherever it stands, and return its results."""
    fill_standard_descriptors()  # before anything is opened
    with ExitStack() as ends:
        signals = ends.enter_context(Signals())  # first: handlers are restored when all else has ended
        driver_log = ends.enter_context(DriverLog(SystemClock()).attached())
        variables.tell_of_vain()
        for change in _changes:
            spec = change(spec)
        spec = again.settle(spec)
        executor = default.chosen(spec.executor)
        clock, hosts = executor.clock, executor.remote_hosts
        check_apart(spec)
        settings, source = settled(spec, datetime.datetime.fromtimestamp(clock.time()))
        connection = connect(settings.spec, inline=executor.inline, wake=executor.wake, hosts=hosts is not None)
        if connection is not None:
            ends.callback(connection.uploader.close)
        if hosts is not None:
            ends.callback(hosts.release)  # also where nothing has begun
        _check_command(settings.spec, here=hosts is None)
        start_from = _check(settings.spec, executor)
        while (started := _start(settings, source, connection, executor, driver_log, ends)) is None:
            pass  # what there is has changed since it was looked at
        owned, plugins, reporter, earlier = started
        begins = Beginnings(followed(start_from) if isinstance(start_from, Path) else start_from, earlier)

        def warn(line: str) -> None:
            reporter.announce(f"warning: {line}")
            driver_log.add(line)

        hooks = RunHooks(owned.spec, owned.paths.root, clock=clock, warn=warn, say=reporter.announce)
        with hooks, owned.life:
            if hosts is not None:
                owned.life.callback(hosts.release)
                owned.life.callback(owned.undo.wait_elsewhere)
            return Run(owned, plugins, reporter, executor, driver_log, begins, signals).run(hooks)


def _check_command(spec: Spec, *, here: bool) -> None:
    """Raise SettingError for a command that is known to fail."""
    if isinstance(spec.trainable, Command):
        metrics = [spec.metric] if isinstance(spec.metric, str) else spec.metric or ()
        if any(callback.changes_results for callback in spec.callbacks):
            metrics = ()  # they may add it
        try:
            spec.trainable.check_run(metrics, here=here)
        except InvalidSettingError as error:
            raise SettingError(str(error)) from None


def _check(spec: Spec, executor: Executor) -> Path | Checkpoint | None:
    """Refuse what can be refused before anything is looked at; returns the checkpoint that trials start from."""
    _fits(spec, executor)(parse_resources(spec.resources_per_trial))
    check_hooks(spec)
    wants_page(spec)
    strategy = spec.trainable.strategy if isinstance(spec.trainable, GroupTrainable) else ""
    if strategy.endswith("SPREAD") and executor.remote_hosts is None:
        no_effect(f"ScalingConfig(placement_strategy={strategy!r})", "trials run on this machine")
    if executor.virtual_checkpoints and spec.sync_config.upload_dir is not None:
        raise SettingError(
            f"upload_dir={spec.sync_config.upload_dir!r} is not accepted with virtual checkpoints "
            "(SimulatedExecutor(save=...)): there is nothing to copy; accepted: None"
        )
    if spec.reuse_actors and spec.class_api and not resets(spec.trainable):
        no_effect("reuse_actors=True", f"{spec.trainable.__name__} has no method reset_config(new_config)")
    if spec.reuse and executor.clock.virtual:
        raise SettingError(f"reuse={spec.reuse!r} is not accepted with simulated trials, which have no checkpoints")
    checkpoint = _restored_checkpoint(spec.restore)
    if spec.reuse and checkpoint is not None:
        raise SettingError(
            f"reuse={spec.reuse!r} and restore={str(spec.restore)!r}, a checkpoint, exclude each other: what was "
            "trained from nothing is not what begins there; give one of them"
        )
    if spec.overwrite and not executor.inline:
        check_picklable(spec.trainable)  # before the old experiment goes
    return checkpoint


def _start(
    settings: Settings,
    source: RestoreSource | None,
    connection: ReplicaConnection | None,
    executor: Executor,
    driver_log: DriverLog,
    ends: ExitStack,
) -> tuple[OwnedExperiment, PluginSet, Announcer, ReadEarlier] | None:
    """Check all that can be checked by looking, then claim the experiment. None: look again."""
    now = datetime.datetime.fromtimestamp(executor.clock.time())
    paths = ExperimentPaths(settings.spec.storage / settings.spec.named(now))
    with ExitStack() as scratch:
        try:
            prepared = prepare(settings, source, connection, paths, clock=executor.clock, scratch=scratch)
            spec = prepared.settings.spec
            plugins = _plugins(spec, prepared.description.plain, paths, executor.clock, executor)
            reporter = default_reporter(
                spec.progress_reporter, verbose=spec.verbose, metric=spec.metric, mode=spec.mode
            )
            earlier = read_earlier(spec, paths, ends, resumes=prepared.plan.resumes)
            if prepared.plan.action is Action.ASIDE and not executor.inline:
                check_picklable(spec.trainable)  # before the old experiment goes
            owned = apply(
                prepared,
                connection,
                clock=executor.clock,
                inline=executor.inline,
                say=reporter.announce,
                undone=driver_log.let_go,
            )
        except (OwnedElsewhereError, ExperimentExistsError):
            named = settings.spec.name is not None or settings.spec.resume_choice.base is Base.AUTO
            if named or not fs.is_dir(paths.root):
                raise  # with nothing here it is the replica that refuses: it would refuse again
            return None  # a driver that started in the same second was faster: the next name is free
        return None if owned is None else (owned, plugins, reporter, earlier)


def _plugins(
    spec: Spec, settings: Mapping[str, Any], paths: ExperimentPaths, clock: Clock, executor: Executor
) -> PluginSet:
    """Searcher, scheduler, stopper and callbacks, ready to be asked; SettingError for what is none."""
    refuse_used(spec, str(settings["id"]))
    searcher = as_searcher(
        spec.search_alg,
        spec.param_space,
        num_samples=spec.num_samples,
        metric=spec.metric,
        mode=spec.mode,
        seed=int(settings["seed"]),
        trainable_name=spec.trainable_name,
        stop=spec.stop,
        scheduled=spec.scheduler is not None,
    )
    scheduler = as_scheduler(
        default_scheduler(searcher, spec.param_space, spec.stop) if spec.scheduler is None else spec.scheduler,
        metric=spec.metric,
        mode=spec.mode,
        seed=int(settings["seed"]),
        total_resources=executor.total(),
        trial_resources=parse_resources(spec.resources_per_trial),
    )
    user = [*spec.callbacks, *named_callbacks()]
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
    total = executor.total()
    if not default.takes_undeclared:
        return partial(check_fits, total=total)
    return lambda asked: check_fits(declared(asked, total), total)


def _resources_for(
    spec: Spec, check: Callable[[Resources], object], config: Mapping[str, Any]
) -> dict[str, float] | None:
    """What a trial asks for where its config says so; None: what all ask for. Raises ResourceError."""
    if spec.resources_for is None or (asked := spec.resources_for(close(spec.param_space, config))) is None:
        return None
    amounts = parse_resources(asked)
    check(amounts)
    return amounts


def _restored_checkpoint(restore: Any) -> Path | Checkpoint | None:
    """`restore=` as the directory of a checkpoint that was looked at, or as a checkpoint in memory.

    One that lies elsewhere is fetched, and what an address in an experiment means is found.
    """
    if isinstance(restore, Checkpoint):
        if restore.in_memory:
            return restore
    elif restore is None:
        return None
    elif isinstance(restore, (str, os.PathLike)) and (is_elsewhere(restore) or address_in(restore) is not None):
        restore = Checkpoint(restore)
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
