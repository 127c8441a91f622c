"""One driver's life on an experiment: catch up, run the loop, leave in order whatever happens."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trainables.checkpoint import Checkpoint
from trainables.config import CheckpointStrategy
from trainables.store import fs
from trainables.trainable import saves
from tuner import knobs
from tuner.analysis import ExperimentAnalysis
from tuner.callback import CallbackList
from tuner.clock import Clock
from tuner.driver.jobs import LoopSettings, describe, describe_again
from tuner.driver.loop import TrialLoop
from tuner.driver.plugins import Plugins
from tuner.driver.signals import Signals
from tuner.error import (
    StorageFullError,
    SyncError,
    TrialError,
    TrialProcessDiedError,
    TrialsFailedError,
    TrialTimeoutError,
)
from tuner.executors.base import Executor
from tuner.executors.pool import parse_resources
from tuner.experiment import events as ev
from tuner.experiment.driver_log import DriverLog
from tuner.experiment.journal import JournalWriter
from tuner.experiment.leftovers import Look, check_nothing_lost, clear_void, remove_halves, remove_set_aside
from tuner.experiment.paths import TrialPaths
from tuner.experiment.reader import facts_of
from tuner.experiment.resume import reconcile
from tuner.experiment.standing import Results, StandingResult
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.logger.completing import complete
from tuner.opening import fetch, other_hosts
from tuner.opening import restore as inheriting
from tuner.opening.start import Opened
from tuner.progress import ProgressFacts, traceback_tail
from tuner.progress import formatting as text
from tuner.progress.live import Announcer
from tuner.retention import Custodian
from tuner.retention.deleter import delete_here
from tuner.spec import Spec
from tuner.syncer.drain import copy_inherited
from tuner.syncer.replica import Replica
from tuner.syncer.sink import ReplicaSink

FINAL_COMPACT_BYTES = 256 * 1024
SHOWN_MISSING = 20


class Run:
    """One driver's life on an experiment that it owns."""

    def __init__(
        self,
        spec: Spec,
        opened: Opened,
        plugins: Plugins,
        reporter: Announcer,
        executor: Executor,
        clock: Clock,
        link: fetch.Link | None,
        driver_log: DriverLog,
    ) -> None:
        self.link, self.driver_log = link, driver_log
        self.copies = ReplicaSink()
        self.missing: list[str] = []
        """What did not reach the replica."""
        self.spec, self.opened, self.executor, self.clock = spec, opened, executor, clock
        self.inline = executor.inline
        self.hosts = executor.remote_hosts
        contents = opened.contents
        self.state = ExperimentState.from_snapshot(opened.paths.root, contents.snapshot if contents else None)
        # First: when somebody else's callback fails at the start of a trial, that trial has started.
        self.callbacks = plugins.callbacks = CallbackList([opened.beginning, *plugins.callbacks.callbacks])
        self.plugins, self.reporter = plugins, reporter
        opened.beginning.inline = self.inline
        self.taken_up: list[Trial] = []
        """Trials that ran when the last driver was killed."""
        self.ended: list[Trial] = []
        """Trials whose good end was decided before that, and is written down only now."""
        self.touched: dict[str, Trial] = {}
        """Trials of which the journal speaks after its last snapshot: a power cut may have undone work on them."""
        self.results = Results()
        """What the journal says of results after its last snapshot."""
        self.set_aside: list[str] = []
        """What was said of checkpoints of a history that went on elsewhere."""
        self.history_bytes = knobs.history_bytes()
        self.only: frozenset[str] | None = None
        """The trials that may run now; None: all."""

    def run(self, note: str) -> ExperimentAnalysis:
        self.reporter.announce(note)
        for line in self.link.notes if self.link is not None else ():
            self._warn(line)
        warnings = self._catch_up()
        if self.opened.contents is not None:
            self.opened.write_settings()
        self.driver_log.open(self.opened.paths)  # from here on the start is no more refused
        journal = JournalWriter(
            self.opened.paths,
            self.opened.ownership.generation,
            next_seq=self.opened.contents.last_seq + 1 if self.opened.contents else 1,
            clock=self.clock,
            sync="inline" if self.inline else "thread",
            on_durable=self.executor.wake,
            parents=self.opened.contents.chain if self.opened.contents else (),
            guard=self.opened.ownership.check,
            history_bytes=self.history_bytes,
        )
        try:
            for fact in self._first_facts(warnings):
                journal.append(ev.encode(fact))
            journal.flush()
            journal.sync_now()
            for line in warnings:
                self._warn(line)
            loop = self._loop(journal)
            self._drive(loop, journal)
        except StorageFullError:
            with contextlib.suppress(StorageFullError):  # the same once more, behind a second traceback
                journal.close()
            raise
        finally:
            journal.close()
        return self._leave(loop)

    def _warn(self, line: str) -> None:
        self.reporter.announce(line)
        self.driver_log.add(line)

    # --- bringing the state up ------------------------------------------------------------------------

    def _catch_up(self) -> list[str]:
        contents = self.opened.contents
        self.plugins.load(self.state)
        if contents is None:
            return []
        let_go = self.link.let_go if self.link is not None else set()
        facts = facts_of(self.opened.paths, contents.bodies)
        self.plugins.replay(self.state, _noting(self.results.noting(facts, self.state), let_go))
        check_nothing_lost(self.opened.paths, contents, self.state)  # before anything is touched
        if self.link is not None and self.link.fetched:
            for known in self.state.trials:
                if not fs.exists(TrialPaths(known.directory).trial_json):
                    describe(known, int(self.opened.settings["seed"]))  # what else is in it comes when it is needed
        self._describe_again(self.results.by_trial)
        self.touched = {trial_id: self._known(trial_id) for trial_id in self.results.by_trial}
        lost = (f"{damage}; the run goes on from what stands before them" for damage in contents.damaged)
        notes, seed = [*contents.notes, *lost, *self.opened.changes], self.opened.settings["seed"]
        if self.spec.seed not in (None, seed):
            notes.append(f"seed={self.spec.seed!r} has no effect: this experiment was started with seed={seed!r}")
        return notes

    def _first_facts(self, notes: list[str]) -> Iterator[ev.AnyFact]:
        """Whose history this generation continues, and what is really on disk."""
        contents, ownership = self.opened.contents, self.opened.ownership
        if self.link is not None and contents is not None:
            inheriting.find_origins(self.link, self.opened.settings, self.state)
        if self.hosts is not None:
            other_hosts.join(
                self.hosts, self.opened, self.state, self.link, self.spec.sync_config, self.reporter.announce
            )
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
        if self.hosts is not None:
            notes.extend(other_hosts.gather(self.hosts, self.state, fetch.elsewhere(self.link)))
        look = Look()
        reached = {trial.trial_id: trial.iteration for trial in self.state.trials if trial.status != trial.TERMINATED}
        facts, problems = reconcile(
            self.state,
            listed=look.listed,
            resume=self.spec.resume_choice,
            now=self.clock.time(),
            elsewhere=fetch.elsewhere(self.link),
            let_go=fetch.let_go(self.link),
            fetched=self.link is not None and (self.link.fetched or self.link.origins is not None),
        )
        notes.extend([*problems, *look.set_aside(self.state, facts)])
        notes.extend(self._complete_files(facts, reached))
        if self.link is not None and (self.link.fetched or self.link.unsettled):
            self.set_aside = clear_void(self.opened.paths, self.state, self.link.let_go)
            notes.extend(self.set_aside)
            fs.remove_quietly(self.opened.paths.taking_over)
        if self.spec.resume_choice.only_errored:
            self.only = frozenset(fact.trial for fact in facts if isinstance(fact, ev.TrialReopened))
        for fact in facts:
            if isinstance(fact, ev.CheckpointPublished):  # what was found counts for the scheduler too
                found = self.state.trials.get(fact.ref.trial_id)
                assert found is not None
                self.plugins.on_checkpoint(found, fact.ref.iteration)
            trial_id = fact.trial if isinstance(fact, (ev.TrialEnded, ev.AttemptEnded)) else ""
            taken_up = self.state.trials.get(trial_id)
            if taken_up is not None:
                self.taken_up.append(taken_up)
                if isinstance(fact, ev.TrialEnded):
                    self.plugins.on_trial_end(taken_up, taken_up.last_result, failed=False)
                    self.ended.append(taken_up)
            self.plugins.collect()
        yield from facts

    def _complete_files(self, found: Iterable[ev.AnyFact], reached: Mapping[str, int]) -> list[str]:
        """Put back into trials' files what a power cut took, or the replica had not yet; say what nobody has.

        `found`: facts of what is really there, which the journal does not know; `reached`: the iterations before them.
        """
        for fact in found:
            trial_id = fact.ref.trial_id if isinstance(fact, ev.CheckpointPublished) else ""
            self.results.note(fact, reached=reached.get(trial_id, 0))
        fetched = self.link is not None and self.link.fetched
        for trial in self.state.trials if fetched else ():
            if not trial.is_finished():  # of those that have ended the files may not be here yet
                self.results.by_trial.setdefault(trial.trial_id, StandingResult())
        notes = []
        for trial_id, standing in self.results.by_trial.items():
            trial = self._known(trial_id)
            standing.fetched = fetched
            missing = complete(self.callbacks.callbacks, trial, standing)
            if missing:
                self.touched[trial_id] = trial
                few = f"{missing[0]} to {missing[-1]}" if len(missing) > 1 else str(missing[0])
                notes.append(
                    f"{trial.name}: {text.counted(len(missing), 'result')} before its iteration {trial.iteration} "
                    f"({few}) went with the machine that had the journal; in its files these rows say missing"
                )
        return notes

    def _known(self, trial_id: str) -> Trial:
        trial = self.state.trials.get(trial_id)
        assert trial is not None
        return trial

    def _describe_again(self, touched: Container[str]) -> None:
        """A power cut may have taken what identifies a trial: of those that go on, and those that were worked on."""
        if not self.executor.directories:
            return
        for trial in self.state.trials:
            if trial.attempt and (not trial.is_finished() or trial.trial_id in touched):
                with contextlib.suppress(OSError):  # it is for people and other programs: nothing waits for it
                    describe_again(trial, int(self.opened.settings["seed"]))

    # --- the parts --------------------------------------------------------------------------------------

    def _loop(self, journal: JournalWriter) -> TrialLoop:
        spec, config = self.spec, self.spec.checkpoint_config
        directories = self.executor.directories
        stdout, stderr = _log_files(spec.log_to_file) if directories else (None, None)
        settings = LoopSettings(
            experiment_name=self.opened.paths.root.name,
            root=self.opened.paths.root,
            temporary=self.opened.temporary,
            seed=int(self.opened.settings["seed"]),
            class_api=spec.class_api,
            can_save=spec.class_api and saves(spec.trainable),
            resources=parse_resources(spec.resources),
            max_concurrent=self.executor.max_concurrent or spec.max_concurrent_trials or None,
            max_failures=spec.failure_config.max_failures,
            fail_fast=bool(spec.failure_config.fail_fast),
            time_budget_s=spec.time_budget_s,  # type: ignore[arg-type]
            trial_timeout_s=spec.trial_timeout_s,
            checkpoint_frequency=getattr(config, "checkpoint_frequency", 0) or 0,
            checkpoint_at_end=bool(getattr(config, "checkpoint_at_end", False)),
            publish="blocking" if self.inline else getattr(config, "publish", "background"),
            name_by_index=isinstance(config, CheckpointStrategy),
            keep_all_ranks=getattr(config, "_checkpoint_keep_all_ranks", False),
            replicated=fetch.place_for_workers(self.link, spec, self.opened.ownership),
            only=self.only,
            restore=self._restore_directory(),
            max_publish_failures=knobs.max_publish_failures(),
            keep_local=None if spec.sync_config.keep_local == "all" else int(spec.sync_config.keep_local),
            stdout=stdout,
            stderr=stderr,
            tee=(spec.verbose or 0) >= 3,
            chdir=knobs.chdir_to_trial_dir() if spec.chdir_to_trial_dir is None else spec.chdir_to_trial_dir,
            original_cwd=Path.cwd(),
            directories=directories,
            grace_s=knobs.grace_s(),
        )
        metric = spec.metric if isinstance(spec.metric, str) else None
        if self.link is not None:
            generation, new = self.opened.ownership.generation, self.opened.contents is None
            paths, clock = self.opened.paths, self.clock
            self.copies = replica = fetch.replica_of(self.link, paths, journal, generation, clock)
            fetch.start(self.link, replica, self.state, new=new, touched=self.touched)
            self._bring_inherited(replica, journal)
        custodian = Custodian(
            config,
            budget=spec.budget,
            metric=metric,
            mode=spec.mode if isinstance(spec.mode, str) else None,
            inline=self.inline,
            wake=self.executor.wake,
            is_read=self.copies.reads,
            delete=delete_here if self.hosts is None else self.hosts.delete,
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
            copies=self.copies,
            hosts=self.hosts,
        )

    def _bring_inherited(self, replica: Replica, journal: JournalWriter) -> None:
        """Copy the checkpoints of an experiment that this one continues to the replica, before the first trial."""

        def tell(fact: ev.AnyFact) -> None:
            self.state.apply(fact)
            journal.append(ev.encode(fact))
            journal.flush()

        if self.link is not None and self.link.origins:
            self.reporter.announce(f"copying {text.counted(len(self.link.origins), 'checkpoint')} to {replica.place}")
            copy_inherited(replica, tell, ownership=self.opened.ownership, clock=self.clock)
            journal.sync_now()

    def _restore_directory(self) -> Path | None:
        """Where the checkpoint of `restore=` lies; one from memory is written out for as long as the run takes."""
        restore = self.spec.restore
        if isinstance(restore, Checkpoint):
            return Path(restore.to_directory(self.opened.temporary / "restore"))
        return None if restore is None else Path(restore)

    def _progress(self) -> ProgressFacts:
        counts, backlog = self.state.counts, self.copies.backlog
        return ProgressFacts(
            pending=counts[Trial.PENDING],
            running=counts[Trial.RUNNING],
            paused=counts[Trial.PAUSED],
            done=counts[Trial.TERMINATED],
            failed=counts[Trial.ERROR],
            checkpoints=self.state.checkpoint_count,
            checkpoint_bytes=self.state.checkpoint_bytes,
            to_copy=backlog.checkpoints,
            bytes_to_copy=backlog.bytes,
            copy_error=backlog.error,
        )

    # --- running and leaving -------------------------------------------------------------------------------

    def _drive(self, loop: TrialLoop, journal: JournalWriter) -> None:
        why = "failed"
        ownership = self.opened.ownership
        self.callbacks.setup(
            stop=self.spec.stop, num_samples=self.spec.num_samples, total_num_samples=self.plugins.total_samples
        )
        for trial in self.ended:
            self.callbacks.on_trial_complete(0, self.state.trials, trial)
        with Signals(loop, self.executor) as signals:
            try:
                self.executor.start(
                    self.spec.trainable,
                    lock_fds=[ownership.lock_fd],
                    marker=ownership.id,
                    temporary=self.opened.temporary,
                )
                ownership.record_processes(self.executor.owned_processes())
                loop.run(taken_up=self.taken_up, unsynced=self.touched.values())
                why = loop.halted or "finished"
            except KeyboardInterrupt:
                why = loop.halted or "interrupted"
                raise
            finally:
                signals.leave()
                self.executor.shutdown(grace_s=0.0)
                loop.finish(why)
                if why == "finished" and journal.bytes_since_snapshot > FINAL_COMPACT_BYTES:
                    loop.compact()  # so that looking at the results, and a larger num_samples, start at once
                if why == "finished":
                    journal.archive()
                if why == "finished" and not self.set_aside:
                    remove_set_aside(self.opened.paths)
                self.callbacks.on_experiment_end(self.state.trials)
                if (backlog := loop.backlog).checkpoints:
                    self.reporter.announce(
                        f"waiting for {text.counted(backlog.checkpoints, 'checkpoint')} to be copied "
                        f"({text.size(backlog.bytes)}); Ctrl-C does not wait"
                    )
                self.driver_log.count_rest()  # now: it is copied with the rest
                self.missing = loop.copy_rest(lambda: signals.hurried)
                loop.close()

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
        if loop.halted is not None and self.opened.beginning.replaces:
            self.opened.beginning.take_back()
            self.reporter.announce(
                f"ended early ({loop.halted}), before a trial had started: the experiment that was at "
                f"{self.opened.paths.root} before is back"
            )
        elif loop.halted is not None:
            root = self.opened.paths.root
            self.reporter.announce(
                f"ended early ({loop.halted}); to continue: the same call with "
                f'name={root.name!r} and resume="AUTO", or Tuner.restore({str(root)!r}, ...)'
            )
        self.opened.beginning.settle()
        if self.missing:
            self._warn(_not_copied(self.link, self.missing, self.copies.trouble))
        if loop.halted == "preempted":
            raise SystemExit(143)
        if loop.failure is not None and spec.failure_config.fail_fast == "raise":
            raise _exception(loop, *loop.failure)
        if failed and spec.raise_on_failed_trial:
            names = ", ".join(trial.name for trial in failed[:5])
            more = f" and {len(failed) - 5} more" if len(failed) > 5 else ""
            first = failed[0].error
            word = "AUTO" if all(trial.error and trial.error.disk for trial in failed) else "AUTO+ERRORED"
            shown = traceback_tail(first.traceback) or f"{first.type}: {first.message}" if first is not None else ""
            raise TrialsFailedError(
                f"{len(failed)} of {text.counted(len(self.state.trials), 'trial')} failed: {names}{more} "
                f'(see {failed[0].path}/error.txt; resume="{word}" continues them); the first:\n{shown}',
                analysis,
            )
        if self.missing:
            raise SyncError(_not_copied(self.link, self.missing, self.copies.trouble), analysis, self.missing)
        return analysis


def _not_copied(link: fetch.Link | None, missing: list[str], trouble: str) -> str:
    assert link is not None and link.remote is not None
    shown = "".join(f"\n  {line}" for line in missing[:SHOWN_MISSING])
    more = f"\n  and {len(missing) - SHOWN_MISSING} more" if len(missing) > SHOWN_MISSING else ""
    return (
        f"{text.counted(len(missing), 'thing')} did not arrive at {link.remote.uri}; everything is here, and "
        f"`tuner sync` or a resume copies the rest:{shown}{more}"
        + (f"\n  the last error: {trouble}" if trouble else "")
    )


def _noting(facts: Iterable[ev.AnyFact], let_go: set[tuple[str, str]]) -> Iterator[ev.AnyFact]:
    """Pass facts on; note (trial id, name) of what was let go of."""
    for fact in facts:
        if isinstance(fact, ev.CheckpointForgotten):
            let_go.add((fact.ref.trial_id, fact.ref.name))
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


def _log_files(setting: Any) -> tuple[str | None, str | None]:
    if isinstance(setting, str):
        return setting, setting
    if isinstance(setting, (tuple, list)):
        first, second = setting
        return str(first), str(second)
    return "stdout", "stderr"
