"""Assembles the parts of an experiment, runs the loop, and leaves in order whatever happens."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from trainables.checkpoint import Checkpoint
from trainables.config import CheckpointStrategy
from trainables.store import verify
from trainables.store.manifest import is_published
from tuner import knobs
from tuner.analysis import ExperimentAnalysis
from tuner.callback import CallbackList
from tuner.clock import Clock, SystemClock
from tuner.error import (
    ExperimentExistsError,
    OwnedElsewhereError,
    SettingError,
    TrialError,
    TrialProcessDiedError,
    TrialsFailedError,
    TrialTimeoutError,
)
from tuner.executors import InlineExecutor, LocalExecutor, SimulatedExecutor
from tuner.executors.base import Executor
from tuner.executors.local.shipping import check_shippable
from tuner.executors.resources import check_fits, parse_resources
from tuner.experiment import events as ev
from tuner.experiment.blobs import Blobs
from tuner.experiment.journal import JournalWriter
from tuner.experiment.leftovers import Look, check_nothing_lost, remove_halves
from tuner.experiment.naming import Names
from tuner.experiment.paths import ExperimentPaths, as_local_path
from tuner.experiment.reader import is_experiment
from tuner.experiment.resume import Base, reconcile
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.launching import LoopSettings
from tuner.logger import default_loggers
from tuner.logger.rows import RowLogger
from tuner.loop import TrialLoop
from tuner.opening import Opened, open_experiment, prepare
from tuner.plugins import Plugins
from tuner.progress import ProgressFacts, default_reporter, traceback_tail
from tuner.progress.callback import Announcer
from tuner.retention import Custodian
from tuner.schedulers import as_scheduler
from tuner.search import as_searcher
from tuner.search.space import fingerprint, space_warnings
from tuner.signals import Signals
from tuner.spec import Spec
from tuner.stopper import as_stopper

FINAL_COMPACT_BYTES = 256 * 1024


def execute(spec: Spec) -> ExperimentAnalysis:
    """Run the experiment that `spec` describes, from wherever it stands, and return its results."""
    executor = _executor(spec)
    clock: Clock = executor.clock if isinstance(executor, SimulatedExecutor) else SystemClock()
    opened, plugins, reporter = _open(spec, executor, clock)
    try:
        return _Run(spec, opened, plugins, reporter, executor, clock).run(opened.note)
    finally:
        opened.ownership.release()


def _open(spec: Spec, executor: Executor, clock: Clock) -> tuple[Opened, Plugins, Announcer]:
    """Check all that can be checked by looking, then claim the experiment's directory."""
    now = datetime.datetime.fromtimestamp(clock.time())
    check_fits(parse_resources(spec.resources), executor.total())
    spec.restore = _restore_path(spec.restore)
    if spec.overwrite and isinstance(executor, LocalExecutor):
        check_shippable(spec.trainable)  # before the old experiment goes
    while True:
        paths = ExperimentPaths(spec.storage / spec.experiment_name(now))
        prepared = prepare(spec, paths, clock)
        plugins = _plugins(spec, prepared.settings, paths, clock)
        reporter = default_reporter(spec.progress_reporter, verbose=spec.verbose, metric=spec.metric, mode=spec.mode)
        try:
            opened = open_experiment(spec, paths, prepared, clock=clock)
            if opened is not None:
                return opened, plugins, reporter
        except (OwnedElsewhereError, ExperimentExistsError):
            if spec.name is not None or spec.resume_choice.base is Base.AUTO:
                raise
            # a driver that started in the same second was faster: the next name is free


def _executor(spec: Spec) -> Executor:
    chosen = spec.executor
    if chosen is None or chosen == "local":
        return LocalExecutor()
    if chosen == "inline":
        return InlineExecutor()
    if isinstance(chosen, (str, type)) or not hasattr(chosen, "run_once"):
        raise SettingError(f"executor={chosen!r} is not accepted; accepted are 'local', 'inline' and an Executor")
    made: Executor = chosen
    return made


def _plugins(spec: Spec, settings: Mapping[str, Any], paths: ExperimentPaths, clock: Clock) -> Plugins:
    """Searcher, scheduler, stopper and callbacks, ready to be asked; SettingError for what is none."""
    seed = int(settings["seed"])
    searcher = as_searcher(
        spec.search_alg, spec.param_space, num_samples=spec.num_samples, metric=spec.metric, mode=spec.mode, seed=seed
    )
    scheduler = as_scheduler(spec.scheduler, metric=spec.metric, mode=spec.mode)
    user = list(spec.callbacks)
    callbacks = CallbackList([*user, *default_loggers(user)])
    return Plugins(
        searcher=searcher,
        scheduler=scheduler,
        stopper=as_stopper(spec.stop, clock=clock),
        callbacks=callbacks,
        blobs=Blobs(paths.blobs),
        space=spec.param_space,
        num_samples=spec.num_samples,
        trial_prefix=str(settings["id"]),
        trainable_name=spec.trainable_name,
        names=Names(spec.trial_name_creator, spec.trial_dirname_creator),
        strict_metrics=knobs.strict_metrics(),
    )


class _Run:
    """One driver's life on an experiment that it owns."""

    def __init__(
        self,
        spec: Spec,
        opened: Opened,
        plugins: Plugins,
        reporter: Announcer,
        executor: Executor,
        clock: Clock,
    ) -> None:
        self.spec, self.opened, self.executor, self.clock = spec, opened, executor, clock
        self.inline = isinstance(executor, (InlineExecutor, SimulatedExecutor))
        contents = opened.contents
        self.state = ExperimentState.from_snapshot(opened.paths.root, contents.snapshot if contents else None)
        self.plugins, self.callbacks, self.reporter = plugins, plugins.callbacks, reporter
        self.taken_up: list[Trial] = []
        """Trials that ran when the last driver was killed."""
        self.touched: dict[str, Trial] = {}
        """Trials of which the journal speaks after its last snapshot: a power cut may have undone work on them."""
        self.only: frozenset[str] | None = None
        """The trials that may run now; None: all."""

    def run(self, note: str) -> ExperimentAnalysis:
        self.reporter.announce(note)
        warnings = self._catch_up()
        journal = JournalWriter(
            self.opened.paths,
            self.opened.ownership.generation,
            next_seq=self.opened.contents.last_seq + 1 if self.opened.contents else 1,
            clock=self.clock,
            sync="inline" if self.inline else "thread",
            on_durable=self.executor.wake,
            parents=self.opened.contents.chain if self.opened.contents else (),
            guard=self.opened.ownership.check,
        )
        try:
            for fact in self._first_facts(warnings):
                journal.append(ev.encode(fact))
            journal.flush()
            journal.sync_now()
            for text in warnings:
                self.reporter.announce(text)
            loop = self._loop(journal)
            self._drive(loop, journal)
        finally:
            journal.close()
        return self._leave(loop)

    # --- bringing the state up ------------------------------------------------------------------------

    def _catch_up(self) -> list[str]:
        contents = self.opened.contents
        if contents is None:
            return []
        self.plugins.load(self.state.plugins)
        results: dict[str, dict[int, msgspec.Raw]] = {}
        self.plugins.replay(self.state, _noting((ev.decode(body) for _, body in contents.bodies), results))
        loggers = [callback for callback in self.callbacks.callbacks if isinstance(callback, RowLogger)]
        for trial_id, found in results.items():
            trial = self.state.trials.get(trial_id)
            assert trial is not None
            self.touched[trial_id] = trial
            for logger in loggers:
                logger.complete(trial, found)
        check_nothing_lost(self.opened.paths, contents, self.state)
        notes, seed = list(contents.notes), self.opened.settings["seed"]
        if self.spec.space_given:
            notes += space_warnings(self.opened.settings.get("space", {}), fingerprint(self.spec.param_space))
        if self.spec.seed not in (None, seed):
            notes.append(f"seed={self.spec.seed!r} has no effect: this experiment was started with seed={seed!r}")
        return notes

    def _first_facts(self, notes: list[str]) -> Iterator[ev.AnyFact]:
        """Whose history this generation continues, and what is really on disk."""
        contents, ownership = self.opened.contents, self.opened.ownership
        started = ev.GenerationStarted(ownership.generation)
        if contents is not None:
            started = ev.GenerationStarted(
                ownership.generation, contents.generation, contents.generation_id, contents.last_seq
            )
        self.state.apply(started)
        yield started
        if contents is None:
            return
        remove_halves(self.state, self.touched)
        look = Look()
        facts, problems = reconcile(
            self.state, listed=look.listed, resume=self.spec.resume_choice, now=self.clock.time()
        )
        notes.extend([*problems, *look.set_aside(self.state, facts)])
        if self.spec.resume_choice.only_errored:
            self.only = frozenset(fact.trial for fact in facts if isinstance(fact, ev.TrialReopened))
        for fact in facts:
            trial_id = fact.trial if isinstance(fact, (ev.TrialEnded, ev.AttemptEnded)) else ""
            taken_up = self.state.trials.get(trial_id)
            if taken_up is not None:
                self.taken_up.append(taken_up)
                if isinstance(fact, ev.TrialEnded):
                    self.plugins.on_trial_end(taken_up, taken_up.last_result, failed=False)
        yield from facts

    # --- the parts --------------------------------------------------------------------------------------

    def _loop(self, journal: JournalWriter) -> TrialLoop:
        spec, config = self.spec, self.spec.checkpoint_config
        stdout, stderr = _log_files(spec.log_to_file)
        settings = LoopSettings(
            experiment_name=self.opened.paths.root.name,
            root=self.opened.paths.root,
            temporary=self.opened.temporary,
            seed=int(self.opened.settings["seed"]),
            class_api=spec.class_api,
            resources=parse_resources(spec.resources),
            max_concurrent=spec.max_concurrent_trials or None,
            max_failures=spec.failure_config.max_failures,
            fail_fast=bool(spec.failure_config.fail_fast),
            time_budget_s=spec.time_budget_s,  # type: ignore[arg-type]
            trial_timeout_s=spec.trial_timeout_s,
            checkpoint_frequency=getattr(config, "checkpoint_frequency", 0) or 0,
            checkpoint_at_end=bool(getattr(config, "checkpoint_at_end", False)),
            publish="blocking" if self.inline else getattr(config, "publish", "background"),
            name_by_index=isinstance(config, CheckpointStrategy),
            only=self.only,
            restore=self._restore_directory(),
            max_publish_failures=knobs.max_publish_failures(),
            stdout=stdout,
            stderr=stderr,
            tee=(spec.verbose or 0) >= 3,
            chdir=knobs.chdir_to_trial_dir() if spec.chdir_to_trial_dir is None else spec.chdir_to_trial_dir,
            original_cwd=Path.cwd(),
            grace_s=knobs.grace_s(),
        )
        metric = spec.metric if isinstance(spec.metric, str) else None
        custodian = Custodian(
            config,
            budget=spec.budget,
            metric=metric,
            mode=spec.mode if isinstance(spec.mode, str) else None,
            inline=self.inline,
            wake=self.executor.wake,
        )
        self.reporter.facts = self._progress
        self.plugins.callbacks.append(self.reporter)
        return TrialLoop(
            settings,
            state=self.state,
            journal=journal,
            ownership=self.opened.ownership,
            executor=self.executor,
            plugins=self.plugins,
            custodian=custodian,
            clock=self.clock,
        )

    def _restore_directory(self) -> Path | None:
        """Where the checkpoint of `restore=` lies; one from memory is written out for as long as the run takes."""
        restore = self.spec.restore
        if isinstance(restore, Checkpoint):
            return Path(restore.to_directory(self.opened.temporary / "restore"))
        return None if restore is None else Path(restore)

    def _progress(self) -> ProgressFacts:
        counts = self.state.counts
        return ProgressFacts(
            pending=counts[Trial.PENDING],
            running=counts[Trial.RUNNING],
            paused=counts[Trial.PAUSED],
            done=counts[Trial.TERMINATED],
            failed=counts[Trial.ERROR],
            checkpoints=self.state.checkpoint_count,
            checkpoint_bytes=self.state.checkpoint_bytes,
        )

    # --- running and leaving -------------------------------------------------------------------------------

    def _drive(self, loop: TrialLoop, journal: JournalWriter) -> None:
        why = "failed"
        ownership = self.opened.ownership
        self.callbacks.setup(
            stop=self.spec.stop, num_samples=self.spec.num_samples, total_num_samples=self.spec.num_samples
        )
        try:
            with Signals(loop, self.executor):
                self.executor.start(
                    self.spec.trainable,
                    lock_fds=[ownership.lock_fd],
                    marker=ownership.id,
                    temporary=self.opened.temporary,
                )
                ownership.record_processes(self.executor.owned_processes())
                loop.run(taken_up=self.taken_up, unsynced=self.touched.values())
                why = loop.halted or "finished"
        finally:
            self.executor.shutdown(grace_s=0.0)
            loop.finish(why)
            if why == "finished" and journal.bytes_since_snapshot > FINAL_COMPACT_BYTES:
                loop.compact()  # so that looking at the results, and a larger num_samples, start at once
            self.callbacks.on_experiment_end(self.state.trials)

    def _leave(self, loop: TrialLoop) -> ExperimentAnalysis:
        spec = self.spec
        analysis = ExperimentAnalysis(
            self.opened.paths.root,
            trials=self.state.trials,
            metric=spec.metric,
            mode=spec.mode,
            settings=self.opened.settings,
        )
        failed = [trial for trial in self.state.trials if trial.status == trial.ERROR]
        if loop.halted is not None:
            self.reporter.announce(
                f"ended early ({loop.halted}); to continue: the same call with "
                f'name={self.opened.paths.root.name!r} and resume="AUTO"'
            )
        if loop.halted == "preempted":
            raise SystemExit(143)
        if loop.failure is not None and spec.failure_config.fail_fast == "raise":
            raise _exception(loop, *loop.failure)
        if failed and spec.raise_on_failed_trial:
            names = ", ".join(trial.name for trial in failed[:5])
            more = f" and {len(failed) - 5} more" if len(failed) > 5 else ""
            first = failed[0].error
            shown = traceback_tail(first.traceback) or f"{first.type}: {first.message}" if first is not None else ""
            raise TrialsFailedError(
                f"{len(failed)} of {len(self.state.trials)} trials failed: {names}{more} "
                f'(see {failed[0].path}/error.txt; resume="AUTO+ERRORED" continues them); the first:\n{shown}',
                analysis,
            )
        return analysis


def _noting(facts: Iterable[ev.AnyFact], results: dict[str, dict[int, msgspec.Raw]]) -> Iterator[ev.AnyFact]:
    """Pass facts on, and note by trial the results that stand after them."""
    for fact in facts:
        if isinstance(fact, (ev.CheckpointDeleted, ev.PublishFailed)):
            results.setdefault(fact.ref.trial_id, {})
        if isinstance(fact, ev.ResultReported):
            results.setdefault(fact.trial, {})[fact.iteration] = fact.metrics
        elif isinstance(fact, ev.RolledBack):
            found = results.get(fact.trial, {})
            results[fact.trial] = {reached: raw for reached, raw in found.items() if reached <= fact.iteration}
        yield fact


def _exception(loop: TrialLoop, trial_id: str, error: ev.ErrorInfo) -> BaseException:
    """The trial's own exception where it could be shipped, else ours with its text."""
    pickled = loop.exceptions.get(trial_id)
    if pickled:
        import cloudpickle

        with contextlib.suppress(Exception):  # a class that is not importable here: its text is shown below
            original: BaseException = cloudpickle.loads(pickled)
            return original
    kinds: dict[str, Callable[[str, str], TrialError]] = {
        "TrialTimeoutError": TrialTimeoutError,
        "TrialProcessDiedError": TrialProcessDiedError,
    }
    return kinds.get(error.type, TrialError)(f"{error.type}: {error.message}", error.traceback)


def _restore_path(restore: Any) -> Path | Checkpoint | None:
    """`restore=` as the directory of a checkpoint that was looked at, or as a checkpoint in memory."""
    if restore is None or (isinstance(restore, Checkpoint) and restore.in_memory):
        return restore
    path = as_local_path(restore.path if isinstance(restore, Checkpoint) else restore)
    if is_published(path):
        verify.check(path)
    elif is_experiment(ExperimentPaths(path)):
        raise SettingError(
            f"restore={str(restore)!r}: there is an experiment at {path}, and no checkpoint. Continue it with "
            f"name={path.name!r}, storage_path={str(path.parent)!r} and resume=True, or with Tuner.restore"
        )
    elif not path.is_dir():
        raise SettingError(f"restore={str(restore)!r}: there is no checkpoint at {path}")
    return path


def _log_files(setting: Any) -> tuple[str | None, str | None]:
    if isinstance(setting, str):
        return setting, setting
    if isinstance(setting, (tuple, list)):
        first, second = setting
        return str(first), str(second)
    return "stdout", "stderr"
