"""One driver's life on an experiment: catch up, run the loop, leave in order whatever happens."""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from pathlib import Path

from trainables.store import delete as store_delete
from tuner import knobs
from tuner.analysis import ExperimentAnalysis
from tuner.callback import CallbackList
from tuner.driver import interruption, leaving
from tuner.driver.catch_up import CatchUp
from tuner.driver.changed_settings import take_up
from tuner.driver.endings import Endings, HaltCause
from tuner.driver.hooks import RunHooks
from tuner.driver.jobs import Beginnings, RunPlan, needs_reports, restore_directory
from tuner.driver.left_to_run import LeftToRun, how_far
from tuner.driver.live_page import live_page, wants_page
from tuner.driver.loop import TrialLoop
from tuner.driver.plugins import FactApplier, PluginSet
from tuner.driver.shown_progress import progress_facts
from tuner.driver.signals import Signals
from tuner.error import Interrupted, OwnedElsewhereError, StorageFullError, SyncError
from tuner.executors.base import Executor
from tuner.experiment import events as ev
from tuner.experiment import existing
from tuner.experiment.driver_log import DriverLog
from tuner.experiment.journal import JournalWriter
from tuner.experiment.leftovers import remove_set_aside
from tuner.experiment.state import ExperimentState
from tuner.logger.rows import gather
from tuner.opening.apply import OwnedExperiment
from tuner.opening.attach import place_for_workers
from tuner.orders.mailbox import Mailbox
from tuner.progress import formatting as text
from tuner.progress.announcer import Announcer
from tuner.retention import Checker, Deleter, Retention, RetentionPlanner
from tuner.retention.deleter import Delete
from tuner.syncer.drain import copy_inherited
from tuner.syncer.replica import Replica
from tuner.syncer.sink import ReplicaSink

FINAL_COMPACT_BYTES = 256 * 1024


class Run:
    """One driver's life on an experiment that it owns."""

    def __init__(
        self,
        opened: OwnedExperiment,
        plugins: PluginSet,
        reporter: Announcer,
        executor: Executor,
        driver_log: DriverLog,
        begins: Beginnings,
        signals: Signals,
    ) -> None:
        self.driver_log, self.begins, self._signals = driver_log, begins, signals
        self.copies = ReplicaSink()
        self._raises_interrupted = knobs.on_interrupt() == "raise"
        self.missing: list[str] = []
        """What did not reach the replica."""
        self.spec, self.opened, self.executor = opened.spec, opened, executor
        # First: when somebody else's callback fails at the start of a trial, that trial has started.
        plugins.callbacks = CallbackList([opened.undo, *plugins.callbacks.callbacks])
        snapshot = opened.contents.snapshot if opened.contents else None
        self.state = ExperimentState.from_snapshot(opened.paths.root, snapshot)
        self.plugins, self.reporter = plugins, reporter
        self.applier = FactApplier(self.state, plugins)
        self.caught_up = CatchUp(opened, self.applier, executor=executor, announce=reporter.announce)

    def run(self, hooks: RunHooks) -> ExperimentAnalysis:
        """Run to the end. Raises Interrupted after Ctrl-C, SystemExit after a notice, and what settings want raised."""
        self._hooks, hooks.trials, hooks.state = hooks, self.state.trials, "failed"
        if hooks.failing is not None:
            self.plugins.callbacks.append(hooks.failing)
        try:
            return self._leave(self._run())
        except Interrupted:
            raise
        except KeyboardInterrupt:
            raise self._interrupted() from None

    def _run(self) -> Endings:
        warnings = self.caught_up.replay()  # before the first line, which tells of what it finds
        taken_back, changed = take_up(self.spec, self.state, self.plugins, self.executor.clock.time())
        source = self.plugins.source
        total = len(self.state.trials) if source.all_created(self.state) else source.planned(self.state)
        found = how_far(self.state, total, self.spec.resume_choice)
        self.reporter.announce(self.opened.start.note + (f": {found}" if found else ""))
        if self.spec.takes_max and not existing.is_ray_script():
            self._warn(f'mode="max" is taken for metric={self.spec.metric!r}; give mode="min" where lower is better')
        for line in self.begins.earlier.told:
            self.reporter.announce(line)
        for line in self.opened.replica.notes if self.opened.replica is not None else ():
            self._warn(line)
        left = LeftToRun(self.opened, self.state, self.plugins.source)
        self.driver_log.open(self.opened.paths)  # from here on the start is no more refused
        journal = JournalWriter(
            self.opened.paths,
            self.opened.ownership.generation,
            next_seq=self.opened.contents.last_seq + 1 if self.opened.contents else 1,
            clock=self.executor.clock,
            sync="inline" if self.executor.inline else "thread",
            on_durable=self.executor.wake,
            parents=self.opened.contents.chain if self.opened.contents else (),
            guard=self.opened.ownership.check,
            before=gather(self.plugins.callbacks.callbacks),
            history_bytes=knobs.history_bytes(),
        )
        try:
            for fact in self.caught_up.first_facts(warnings):
                journal.append(ev.encode(fact))
            for fact in taken_back:
                self.state.apply(fact)
                journal.append(ev.encode(fact))
            journal.flush()
            journal.sync_now()
            for line in warnings:
                self._warn(line)
            for line in changed:
                self._warn(line, logging.INFO)
            with live_page(self.opened.paths.root, self.reporter.show, wanted=wants_page(self.spec)):
                loop = self._loop(journal)
                self._drive(loop, journal, left)
        except Exception as error:
            if isinstance(error, StorageFullError):
                with contextlib.suppress(StorageFullError):  # the same once more, behind a second traceback
                    journal.close()
            if not isinstance(error, OwnedElsewhereError) and any(trial.attempt for trial in self.state.trials):
                error.add_note(f"to continue: {self.opened.how_to_continue}")
            raise
        finally:
            journal.close()
        return loop.endings

    def _interrupted(self, *, back: bool = False) -> Interrupted:
        total, how = self.plugins.source.planned(self.state), self.opened.how_to_continue
        return interruption.interrupted(self._analysis(), how=how, total=total, back=back)

    def _warn(self, line: str, level: int = logging.WARNING) -> None:
        self.reporter.announce(line)
        self.driver_log.add(line, level=level)

    # --- the parts --------------------------------------------------------------------------------------

    def _loop(self, journal: JournalWriter) -> TrialLoop:
        spec = self.spec
        plan = RunPlan(
            spec,
            self.opened.paths.root.name,
            self.opened.temporary,
            int(self.opened.description["seed"]),
            only=self.caught_up.only,
            start_from=restore_directory(self.begins.checkpoint, self.opened.temporary),
            earlier=self.begins.earlier.trials,
            replicated=place_for_workers(self.caught_up.replica, spec, self.opened.ownership),
            needs_reports=needs_reports(spec),
        )
        hosts, owned = self.executor.remote_hosts, self.caught_up.replica
        if owned is not None:
            generation, new = self.opened.ownership.generation, self.opened.contents is None
            self.copies = replica = owned.open(self.opened.paths, journal, generation, self.executor.clock)
            touched, origins = self.caught_up.touched, self.caught_up.origins
            replica.start(self.state, owned.inventory(self.state, new=new, touched=touched, origins=origins))
            self._bring_inherited(replica, journal)
        inline, wake, virtual = self.executor.inline, self.executor.wake, self.executor.virtual_checkpoints
        delete: Delete = store_delete.delete if hosts is None else hosts.delete
        if virtual:
            delete = _nothing_to_delete
        retention = Retention(
            RetentionPlanner(
                spec.checkpoint_config,
                budget=spec.checkpoint_budget,
                metric=spec.metric if isinstance(spec.metric, str) else None,
                mode=spec.mode if isinstance(spec.mode, str) else None,
            ),
            Checker(inline=inline, wake=wake, virtual=virtual),
            Deleter(delete, wake=wake, inline=inline, is_pinned=self.copies.reads),
        )
        self.plugins.callbacks.append(self.reporter)
        loop = TrialLoop(
            plan,
            applier=self.applier,
            journal=journal,
            ownership=self.opened.ownership,
            executor=self.executor,
            retention=retention,
            clock=self.executor.clock,
            copies=self.copies,
            mailbox=None if self.executor.clock.virtual else Mailbox(self.opened.paths.root),
        )
        running, source = loop.attempts.running, self.plugins.source
        self.reporter.facts = partial(progress_facts, source, self.state, self.copies, self.executor, running)
        loop.endings.on_halt = lambda cause, grace: self.reporter.announce(
            interruption.stopping(cause, len(running), grace, inline=inline)
        )
        return loop

    def _bring_inherited(self, replica: Replica, journal: JournalWriter) -> None:
        """Copy the checkpoints of an experiment that this one continues to the replica, before the first trial."""

        def tell(fact: ev.AnyFact) -> None:
            self.state.apply(fact)
            journal.append(ev.encode(fact))
            journal.flush()

        if origins := self.caught_up.origins:
            self.reporter.announce(f"copying {text.counted(len(origins), 'checkpoint')} to {replica.place}")
            copy_inherited(replica, tell, ownership=self.opened.ownership, clock=self.executor.clock)
            journal.sync_now()

    def _analysis(self) -> ExperimentAnalysis:
        spec, root = self.spec, self.opened.paths.root
        return ExperimentAnalysis(
            root, trials=self.state.trials, metric=spec.metric, mode=spec.mode, settings=self.opened.description
        )

    # --- running and leaving -------------------------------------------------------------------------------

    def _drive(self, loop: TrialLoop, journal: JournalWriter, left: LeftToRun) -> None:
        why = "failed"
        ownership = self.opened.ownership
        total, samples = self.plugins.source.total_samples, self.plugins.source.num_samples
        self.plugins.callbacks.setup(stop=self.spec.stop, num_samples=samples, total_num_samples=total)
        for trial in self.caught_up.ended:
            self.plugins.callbacks.on_trial_complete(0, self.state.trials, trial)
        with self._signals.handled(loop.endings, self.executor):
            try:
                self.executor.note = partial(self.driver_log.add, level=logging.INFO)
                self.executor.start(
                    self.spec.trainable,
                    lock_fds=[ownership.lock_fd],
                    marker=ownership.id,
                    temporary=self.opened.temporary,
                )
                ownership.record_processes(self.executor.owned_processes())
                loop.run(taken_up=self.caught_up.taken_up, unsynced=self.caught_up.touched.values())
                halted = loop.endings.halted
                why = "finished" if halted is None else halted.value
            except KeyboardInterrupt:
                why = (loop.endings.halted or HaltCause.INTERRUPTED).value
                raise
            except Exception as error:
                if not isinstance(error, OwnedElsewhereError):  # the log is another driver's now
                    self.driver_log.add_end(error)
                raise
            finally:
                self._signals.leave()
                self._hooks.state = why
                self.executor.shutdown(grace_s=0.0)
                loop.finish(why)
                if why == "finished" and journal.bytes_since_snapshot > FINAL_COMPACT_BYTES:
                    loop.compact()  # so that looking at the results, and a larger num_samples, start at once
                if why == "finished":
                    journal.archive()
                if why == "finished" and not self.caught_up.set_aside:
                    remove_set_aside(self.opened.paths)
                self.reporter.failures_are_raised = why != "failed" and leaving.raises_failures(self.spec, loop.endings)
                self.plugins.callbacks.on_experiment_end(self.state.trials)
                if (backlog := self.copies.backlog).checkpoints:
                    self.reporter.announce(leaving.still_copied(backlog.checkpoints, backlog.bytes))
                if why == "finished" and (said := left.nothing()) is not None:
                    self._warn(said, logging.WARNING if self.opened.start.code_changed else logging.INFO)
                self.driver_log.count_rest()  # now: it is copied with the rest
                self.missing = loop.copy_rest(lambda: self._signals.hurried)
                loop.close()

    def _leave(self, endings: Endings) -> ExperimentAnalysis:
        root, halted, undo = self.opened.paths.root, endings.halted, self.opened.undo
        analysis, back = self._analysis(), halted is not None and undo.replaces
        raises = halted is HaltCause.INTERRUPTED and self._raises_interrupted
        if halted is not None and back:
            undo.take_back()
            early = f"ended early ({halted.value}), before a trial had started"
            self.reporter.announce(f"{early}: the experiment that was at {root} before is back")
        elif halted is not None and not raises:
            self.reporter.announce(f"ended early ({halted.value}); to continue: {self.opened.how_to_continue}")
        undo.settle()
        missing = ""
        if self.missing and self.opened.replica is not None:
            missing = leaving.not_copied(self.opened.replica.remote.uri, self.missing, self.copies.trouble)
            self._warn(missing)
        if halted is not None and halted.exit_status is not None:
            raise SystemExit(halted.exit_status)
        if raises:
            raise self._interrupted(back=back)
        leaving.raise_failures(self.spec, analysis, endings, starter=self.opened.starter, folded=self.reporter.folds)
        if self.missing:
            raise SyncError(missing, analysis, self.missing)
        return analysis


def _nothing_to_delete(path: Path) -> bool:
    """A virtual checkpoint is gone with the fact that lets go of it."""
    return True
