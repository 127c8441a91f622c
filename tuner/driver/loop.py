"""TrialLoop: hears what happens, has it handled, and settles what came of it. The only place that waits.

Who starts is said in `admission`, what a result means in `results`, what an exit means in `endings`. Waiting happens in
`Executor.run_once`; whatever takes long (fsync, hashing, deletion) runs beside the loop and comes back through `wake`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

from tuner.clock import Clock
from tuner.driver.admission import Admission
from tuner.driver.adoption import Adoption
from tuner.driver.attempts import Attempts, Waiting
from tuner.driver.changed_settings import take_limits
from tuner.driver.checkpoints import TrialCheckpoints
from tuner.driver.endings import Endings, HaltCause
from tuner.driver.fact_log import FULL_LOOK_S, FactLog
from tuner.driver.heard_events import EventHandler
from tuner.driver.jobs import RunPlan
from tuner.driver.left_waiting import say_what_is_left
from tuner.driver.parts import LoopParts, Timer
from tuner.driver.plugins import FactApplier
from tuner.driver.results import ResultHandler
from tuner.driver.seen_interruptions import SeenInterruptions
from tuner.driver.steering import Steering
from tuner.error import StorageFullError
from tuner.executors.base import Event, Executor
from tuner.experiment import events as ev
from tuner.experiment.journal import JournalWriter
from tuner.experiment.ownership import HEARTBEAT_S, Ownership
from tuner.experiment.trial import Trial
from tuner.orders.mailbox import Mailbox
from tuner.retention import Retention
from tuner.retention.deleter import QUIET_S
from tuner.slow_calls import watched_calls
from tuner.syncer.sink import ReplicaSink

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""After so long the loop looks again whether it owns the experiment: it may have been stopped, and taken over from."""
DELETE_GRACE_S = 5.0
"""How long the end of a run waits for deletions, or for each where nothing hurries it; the next start does the rest."""


class TrialLoop:
    """Runs an experiment from wherever its state stands to its end.

    Args:
        applier: the state, caught up, and the plug-ins.
        mailbox: where users put orders; None: nowhere.
    """

    def __init__(
        self,
        plan: RunPlan,
        *,
        applier: FactApplier,
        journal: JournalWriter,
        ownership: Ownership | None,
        executor: Executor,
        retention: Retention,
        clock: Clock,
        copies: ReplicaSink | None = None,
        mailbox: Mailbox | None = None,
    ) -> None:
        state, attempts = applier.state, Attempts()
        copies = ReplicaSink() if copies is None else copies
        facts = FactLog(applier, journal, clock=clock, directories=executor.directories)
        checkpoints = TrialCheckpoints(
            facts,
            retention,
            copies,
            ownership=ownership,
            running=attempts.running,
            keep_local=plan.spec.sync_config.local_copies,
            class_api=plan.spec.class_api,
            hosts=executor.remote_hosts,
        )
        waiting = Waiting(
            trial for trial in state.trials if trial.waits and (plan.only is None or trial.trial_id in plan.only)
        )
        seen = SeenInterruptions(plan.spec, clock)
        self.attempts = attempts
        self._parts = parts = LoopParts(
            plan, facts, applier.plugins, checkpoints, executor, copies, clock, ownership, attempts, waiting, seen
        )
        take_limits(parts)
        self.endings = Endings(parts)
        self.results = ResultHandler(parts, self.endings)
        self.admission = Admission(parts, self.endings, self.results)
        self.steering = Steering(parts, self.endings, mailbox)
        self._adoption = Adoption(parts, self.endings)
        self._heard = EventHandler(parts, self.endings, self.results, self._adoption)
        self._applier, self._facts, self._timers = applier, facts, parts.timers
        self._retention = retention
        self._looked_at = clock.monotonic()

    # --- the loop -----------------------------------------------------------------------------------

    def run(self, *, taken_up: Iterable[Trial] = (), unsynced: Iterable[Trial] = ()) -> None:
        """Run until no trial is left to run, or the experiment is halted.

        Args:
            taken_up: trials that ran when the last driver was killed: retention runs on what was found of them.
            unsynced: trials with results or deletions since the last snapshot.
        """
        self._begin(taken_up, unsynced)
        with watched_calls(self._parts.clock, lambda: any(trial.attempt for trial in self._applier.state.trials)):
            self._turn_to_the_end()
        if self.endings.halted is None:
            self.endings.missing.check_at_end()
            say_what_is_left(self._parts, more=self.admission.more_to_come())

    def _turn_to_the_end(self) -> None:
        callbacks, state = self._applier.plugins.callbacks, self._applier.state
        attempts, endings = self.attempts, self.endings
        while True:
            callbacks.on_step_begin(self._applier.turn, state.trials)
            full = not self.admission.fill()
            self._settle()
            idle = not attempts.running and not attempts.starved and not attempts.backing_off
            if idle and (not self._adoption.expected or endings.halted is not None):
                if self.admission.moved() or self._wakes() or (endings.halted is None and self.steering.brings_more()):
                    continue
                if not full or endings.halted is not None or not self._parts.executor.awaits_room():
                    break
            if attempts.starved and not attempts.running and not attempts.backing_off and self._ended_starved():
                continue
            self._parts.executor.filled(len(attempts.prepared))
            self._parts.executor.run_once(self.dispatch, self._timeout())
            self._pass_timers()
            self._settle()
            callbacks.on_step_end(self._applier.turn, state.trials)
            if self._parts.executor.deserted:
                endings.halt(HaltCause.DESERTED)
            if endings.halted is None and callbacks.is_preempted():
                endings.halt(HaltCause.PREEMPTED)
            self._applier.turn += 1

    def _begin(self, taken_up: Iterable[Trial], unsynced: Iterable[Trial]) -> None:
        """What is left to do of what the driver before had decided."""
        parts, transitions = self._parts, self.endings.transitions
        self._facts.touch(unsynced)
        if self._applier.plugins.warmed:
            self.compact()
        now = parts.clock.monotonic()
        self._timers[Timer.HEARTBEAT] = now + HEARTBEAT_S
        parts.limits.began = now
        parts.interruptions.resumed(parts.state.trials)
        parts.set_budget()
        if self.steering.listens:
            self._timers[Timer.ORDERS] = now + LOOK_S
        parts.checkpoints.take_over()
        for trial in taken_up:
            parts.checkpoints.forget(trial)
        for trial in [trial for trial in parts.waiting.view if trial.is_stopped]:
            parts.waiting.remove(trial)  # an older version let it wait, or fail
            transitions.end_trial(trial, None)
        transitions.carry_out_noted()
        self._adoption.expect(taken_up)
        self.steering.begin()

    def dispatch(self, events: Sequence[Event]) -> None:
        """Handle a batch of events; when this returns they are journaled and answered."""
        self._pass_timers()  # here too: an executor may run a whole trial within one turn of the loop
        for event in events:
            self._heard.handle(event)
        if self.steering.pending:
            self.steering.settle()
        self._settle()

    def _wakes(self) -> bool:
        """Nothing runs and nobody new comes: whether the scheduler lets one of those that wait go on, or end."""
        waiting, choose = self._parts.waiting, self.admission.choose
        if self.endings.halted is not None or not waiting or choose() is not None:
            return False
        waited = len(waiting)
        self._facts.add(ev.Idle())
        self.endings.transitions.carry_out()
        return len(waiting) < waited or choose() is not None

    def _ended_starved(self) -> bool:
        """Nothing runs: trials that wait for space fail, unless a deletion is under way that may make room."""
        deleting = self._retention.deleter.pending and Timer.STARVED in self._timers
        self._settle()  # what was deleted just now
        if deleting and self.endings.halted is None and self.attempts.starved:
            return False
        self.endings.end_starved()
        return True

    # --- time -----------------------------------------------------------------------------------------------------

    def _timeout(self) -> float | None:
        parts = self._parts
        at = min(self._timers.values())
        if parts.attempts.backing_off:
            at = min(at, *(run.again_at for run in parts.attempts.backing_off.values()))
        if (due := parts.copies.due()) is not None:
            at = min(at, due)
        left = at - parts.clock.monotonic()
        refresh = parts.plugins.callbacks.next_refresh()
        return max(0.0, left if refresh is None else min(left, refresh))

    def _pass_timers(self) -> None:
        if self.endings.asked is not None:
            self.endings.halt(self.endings.asked)
        now = self._parts.clock.monotonic()
        if now - self._looked_at >= LOOK_S:
            self._parts.check_owner()
            self._looked_at = now
        for timer in [timer for timer, at in self._timers.items() if at <= now]:
            del self._timers[timer]
            match timer:
                case Timer.HEARTBEAT:
                    self._timers[timer] = now + HEARTBEAT_S
                    if self._parts.ownership is not None:
                        self._parts.ownership.heartbeat()
                    self._parts.copies.heartbeat()
                case Timer.BUDGET:
                    self.endings.halt(HaltCause.BUDGET)
                case Timer.GRACE:
                    self.endings.end_grace()
                case Timer.ORDERS:
                    self._timers[timer] = now + LOOK_S
                    self.steering.look()
                case Timer.FULL | Timer.STARVED:
                    pass  # the next turn tries to write again, or has those fail
                case _:
                    assert_never(timer)
        if self.attempts.backing_off:
            self.endings.transitions.try_again(now)

    # --- settling -------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Write the journal, answer the trials, then do what became durable, and what ended beside the loop."""
        facts = self._facts
        while True:
            if not facts.flush():
                self._timers[Timer.FULL] = self._parts.clock.monotonic() + FULL_LOOK_S
            if self.results.unanswered:
                self.results.answer()
            written = facts.last_seq
            facts.run_due()
            self._retention.checker.finished()
            for deleted in self._retention.deleter.finished():
                facts.add(deleted)
                self.endings.transitions.feed()
                if (trial := self._parts.state.trials.get(deleted.ref.trial_id)) is not None:
                    facts.touch([trial])
            for copied in self._parts.copies.finished():
                facts.add(copied)
                self._parts.checkpoints.copied(self._parts.state.trial(copied.ref.trial_id))
            answered = self.results.unanswered and self.results.answer()
            if not answered and not facts.due and facts.last_seq == written:
                break  # a fetched checkpoint, for one, starts its trial: that fact is to become durable too
        if facts.should_compact():
            self.compact()

    def compact(self) -> None:
        """Fold the journal into one snapshot."""
        self._facts.compact(self._parts.copies)

    # --- leaving --------------------------------------------------------------------------------------------------

    def finish(self, why: str) -> None:
        """Write the last word: what runs still is unfinished, and the journal is durable."""
        for run in list(self.attempts.running.values()):
            self.endings.transitions.end_attempt(run, "halted")
        self._facts.add(ev.RunEnded(why, self._parts.clock.time()))
        try:
            self._settle()
            self._facts.sync()
            self._settle()
            if self.endings.halted is None:
                self._retention.deleter.drain(QUIET_S)  # what is gone by then is said before the journal is folded
                self._settle()
        except StorageFullError as error:
            log.warning("%s; a resume goes on from what is written", error)

    def copy_rest(self, hurried: Callable[[], bool]) -> list[str]:
        """Wait until the replica has everything, or `hurried`; returns what did not arrive, one line each."""
        return self._parts.checkpoints.copy_rest(self._parts.clock, self.endings.is_out_of_time, hurried)

    def close(self) -> None:
        """Wait for deletions that are under way, and end what works beside the loop."""
        try:
            for fact in self._retention.deleter.close(DELETE_GRACE_S, patient=self.endings.halted is None):
                self._facts.add(fact)
            self._retention.checker.close(DELETE_GRACE_S)
            self._facts.sync()
        except StorageFullError as error:
            log.warning("%s; a resume goes on from what is written", error)
