"""The checkpoints of a running experiment: what is in use stays, retention names the rest, copies and deletions follow.

Everything is journaled first (rule R2): forgotten before deleted, here and in the replica.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trainables import wire
from trainables.store import fs
from trainables.wire import CheckpointRef
from tuner.clock import Clock
from tuner.driver.attempts import LiveAttempt
from tuner.driver.fact_log import FactLog
from tuner.driver.in_use import CheckpointsInUse, Used
from tuner.error import OwnedElsewhereError, StorageFullError
from tuner.executors.remote_hosts import RemoteHosts
from tuner.experiment import events as ev
from tuner.experiment.ownership import Ownership
from tuner.experiment.resume import candidates
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.retention import Retention
from tuner.retention.checker import Job
from tuner.retention.rules import BUDGET
from tuner.syncer.drain import drain
from tuner.syncer.sink import Problem, ReplicaSink, Then

log = logging.getLogger(__name__)

DELETIONS_S = 5.0
"""So long the last push to a replica waits for deletions here that are under way."""


class TrialCheckpoints:
    """Does what retention decides, and finds what attempts start from.

    Args:
        running: the loop's attempts, live.
        keep_local: so many checkpoints of a trial stay here once the replica holds them too; None: all.
    """

    def __init__(
        self,
        facts: FactLog,
        retention: Retention,
        copies: ReplicaSink,
        *,
        ownership: Ownership | None,
        running: Mapping[str, LiveAttempt],
        keep_local: int | None,
        class_api: bool,
        hosts: RemoteHosts | None = None,
    ) -> None:
        self.in_use = CheckpointsInUse(facts.state, copies, running, hosts)
        self._state, self._facts, self._copies = facts.state, facts, copies
        self._planner, self._checker, self._deleter = retention.planner, retention.checker, retention.deleter
        self._ownership, self._hosts = ownership, hosts
        self._keep_local, self._class_api = keep_local, class_api
        self._fetched: Used = set()
        """Given up here in an earlier life, and here again, or still."""

    def take_over(self) -> None:
        """Go on from what is kept, and with deletions that were decided before and are not known to be done."""
        self._planner.take_over(self._state)
        self.in_use.take_over()
        for trial in self._state.trials:
            for ref in trial.forgotten:
                self._delete_when_durable(ref)
            if self._keep_local is not None:
                dropped = (record for record in trial.checkpoints if not record.here)
                left = (record for record in dropped if fs.is_dir(trial.directory / record.ref.name))
                self._fetched |= {(trial.trial_id, record.order) for record in left}
                self.give_up_local(trial)  # the driver before may have died between deciding and deleting

    def best_start(self, trial: Trial) -> CheckpointRecord | None:
        """The donor's checkpoint of a clone that has none of its own yet, else the trial's own newest."""
        borrowed = trial.next_start or self._state.borrowed.get(trial.trial_id)
        own = None if trial.next_start else next(iter(candidates(trial)), None)
        if own is not None or borrowed is None:
            return own
        donor = self._state.trial(borrowed.trial_id)
        found = next((record for record in donor.checkpoints if record.order == borrowed.order), None)
        if found is None:
            log.warning(
                "%s was to go on from checkpoint %s of %s, which is gone: it starts anew with its config",
                trial.name,
                borrowed.name,
                donor.name,
            )
        return found

    def check(self, record: CheckpointRecord, then: Then) -> None:
        """Hash a checkpoint before a trial gets it, brought here first if only the replica has it.

        What `then` is told is said in `tuner.syncer.sink.Then`.
        """
        holder = self._state.trial(record.ref.trial_id)
        path = holder.directory / record.ref.name
        if fs.is_dir(path):
            self._checker.check(path, record.digest, then)
            return
        hosts, copied = self._hosts, self._copies.holds(holder, record)
        if hosts is not None and (hosts.holds(path) or (hosts.uploads and copied)):
            then(None)  # hashed by the host that gets it
        elif copied:
            self._copies.fetch(holder, record, lambda problem: self._brought(holder, record, problem, then))
        elif hosts is not None:
            then("the host that had it is gone")
        else:
            self._checker.check(path, record.digest, then)

    def _brought(self, holder: Trial, record: CheckpointRecord, problem: Problem, then: Then) -> None:
        path = holder.directory / record.ref.name
        if isinstance(problem, ev.ErrorInfo) and fs.is_dir(path):  # a job before it did its work, and could not say so
            self._checker.check(path, record.digest, then)
            return
        if problem is None:
            self._fetched.add((holder.trial_id, record.order))
        then(problem)

    def beside(self, job: Job) -> None:
        """Lay out what a trial is to start from, where checkpoints are hashed."""
        self._checker.beside(job)

    def set_aside(self, record: CheckpointRecord, problem: str) -> None:
        """It is broken: not used, not counted."""
        seq = self._facts.add(ev.CheckpointSetAside(record.ref, problem))
        self._planner.gone(record.ref)
        holder = self._state.trial(record.ref.trial_id)
        if self._hosts is not None and not self._copies.holds(holder, record):
            self._copies.forgotten(holder, record.ref, seq)  # it went with its host: nothing is to be copied

    # --- saves ----------------------------------------------------------------------------------------------

    def refusal(self, run: LiveAttempt, size: int, result: dict[str, Any]) -> str | None:
        """Why a save of so many bytes does not fit into the budget, or None: it does."""
        return self._planner.refusal(run.trial, size, result, self.in_use.now(run))

    def published(self, run: LiveAttempt, body: wire.SavePublished, seq: int) -> str | None:
        """A save is on the disk, and the fact `seq` says so; returns why it cannot stay, or None."""
        trial, record = run.trial, run.trial.checkpoints[-1]
        # Of a class trainable's save, and of one behind its result, nobody knew the size before.
        admitted = not self._class_api and body.ref not in run.behind
        problem = self._planner.saved(trial, record, self.in_use.now(), admitted=admitted)
        if problem is not None:
            self._planner.gone(body.ref)
            self._let_go(body.ref, BUDGET)
            self._facts.add(ev.PublishFailed(body.ref, problem))  # what was asked for is not kept
            return problem
        self._copies.published(trial, record, seq)
        self.in_use.look_what_is_safe(trial)
        self.forget(trial)
        self.given_back(trial)
        return None

    def not_saved(self, trial: Trial, body: wire.SaveFailed) -> None:
        self._facts.add(ev.PublishFailed(body.ref, body.error, body.raised))
        self._planner.not_saved(trial)

    def left_behind(self, run: LiveAttempt) -> Iterator[wire.SavePublished]:
        """What an attempt published before it died and did not tell."""
        trial = run.trial
        known = {record.order for record in trial.checkpoints} | {ref.order for ref in trial.forgotten}
        for found in self._checker.after_death(trial.directory):
            ref = found.ref
            mine = (trial.trial_id, trial.attempt_generation, run.number)
            if (ref.trial_id, ref.generation, ref.attempt) == mine and ref.order not in known:
                yield wire.SavePublished(ref, found.manifest.bytes, found.digest)

    def attempt_ended(self, trial: Trial) -> None:
        """Nothing of this attempt is on its way any more."""
        self._planner.attempt_ended(trial)
        self._copies.ended(trial)
        self.given_back(trial)
        start = trial.started_from
        if (
            start is not None
            and start.trial_id != trial.trial_id
            and self._state.trials.get(start.trial_id) is not None
        ):
            self._decide_again(self._state.trial(start.trial_id))  # a clone of this one may be another's by now

    def given_back(self, trial: Trial) -> None:
        """A clone may not need its donor's checkpoint any more: retention decides about that again."""
        before = self.in_use.given_back(trial)
        if before is not None:
            self._decide_again(self._state.trial(before.trial_id))

    # --- what goes --------------------------------------------------------------------------------------------

    def forget(self, trial: Trial) -> None:
        """Let go of what the settings do not keep."""
        for ref, why in self._planner.evict(trial, self.in_use.now()):
            self._let_go(ref, why)

    def closed(self, run: LiveAttempt, ref: CheckpointRef) -> None:
        """A trial reads a checkpoint no more: retention decides about it again."""
        if ref in run.open:
            run.open.discard(ref)
            self._decide_again(self._state.trial(ref.trial_id))

    def _decide_again(self, trial: Trial) -> None:
        """One of its checkpoints is in use no more."""
        self.forget(trial)
        self.give_up_local(trial)

    def copied(self, trial: Trial) -> None:
        """The replica has another checkpoint of the trial."""
        if self.in_use.is_held_for(trial):
            self.in_use.look_what_is_safe(trial)
            self.forget(trial)
        self.give_up_local(trial)

    def give_up_local(self, trial: Trial) -> None:
        """Delete what the replica holds and this machine need not (`keep_local`)."""
        if self._keep_local is None:
            return
        used, again = self.in_use.now(), self._fetched
        here = [record for record in trial.checkpoints if record.here or (trial.trial_id, record.order) in again]
        for record in here[: -self._keep_local]:
            if self._copies.holds(trial, record) and (trial.trial_id, record.order) not in used:
                again.discard((trial.trial_id, record.order))
                self._facts.add(ev.LocalCopyDropped(record.ref))
                self._delete_when_durable(record.ref)

    def _let_go(self, ref: CheckpointRef, why: str) -> None:
        seq = self._facts.add(ev.CheckpointForgotten(ref, why))
        self._copies.forgotten(self._state.trial(ref.trial_id), ref, seq)
        self._delete_when_durable(ref)  # forgotten first, deleted after: rule R2

    def _delete_when_durable(self, ref: CheckpointRef) -> None:
        path = self._state.trial(ref.trial_id).directory / ref.name

        def go() -> None:
            if self._ownership is not None:
                self._ownership.check()
            self._deleter.submit(ref, path)

        self._facts.when_durable(go)

    # --- the end of the run ----------------------------------------------------------------------------------

    def copy_rest(self, clock: Clock, is_over: Callable[[], bool], hurried: Callable[[], bool]) -> list[str]:
        """Wait until the replica has everything; returns what did not arrive, one line each.

        Given up when nothing arrives for `sync_timeout`, when the grace time of a notice is over, and by Ctrl-C. What
        is deleted here meanwhile is told there too.
        """
        copies = self._copies

        def take(facts: Sequence[ev.CheckpointCopied]) -> bool:
            for fact in facts:
                self._facts.add(fact)
                self.copied(self._state.trial(fact.ref.trial_id))
            self._facts.run_due()
            deleted = []
            if copies.place and copies.complete:
                self._deleter.drain(DELETIONS_S)
                deleted = self._deleter.finished()
            for deletion in deleted:
                self._facts.add(deletion)
            return bool(facts or deleted)

        def done() -> bool:
            if copies.complete or copies.given_up or is_over():
                return True
            if hurried():
                raise KeyboardInterrupt
            return False

        copies.closing()
        try:
            drain(copies, take, ownership=self._ownership, clock=clock, done=done)
        except (KeyboardInterrupt, OwnedElsewhereError, StorageFullError) as error:
            log.warning("%s: not waited for any longer: %s", copies.place, str(error) or "Ctrl-C")
        missing = copies.missing
        copies.release()
        return missing
