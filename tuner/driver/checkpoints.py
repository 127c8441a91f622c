"""The checkpoints of a running experiment: what is in use stays, retention names the rest, copies and deletions follow.

Everything is journaled first (rule R2): forgotten before deleted, here and in the replica.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from trainables import wire
from trainables.store import fs
from trainables.wire import CheckpointRef
from tuner.clock import Clock
from tuner.driver.fact_log import Books
from tuner.driver.running import Running
from tuner.error import OwnedElsewhereError, StorageFullError
from tuner.experiment import events as ev
from tuner.experiment.ownership import Ownership
from tuner.experiment.resume import candidates
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.retention.custodian import Custodian
from tuner.retention.rules import BUDGET
from tuner.syncer.drain import drain
from tuner.syncer.sink import Problem, ReplicaSink, Then

log = logging.getLogger(__name__)

DELETIONS_S = 5.0
"""So long the last push to a replica waits for deletions here that are under way."""

Used = set[tuple[str, tuple[int, int, int]]]


class Hosts(Protocol):
    """Hosts that keep checkpoints of their own, which this one does not see."""

    @property
    def uploads(self) -> bool:
        """They copy them to the replica, and get them from there, themselves."""

    def holds(self, path: Path) -> bool:
        """One of them has the checkpoint that would lie at that path here."""


class Keeping:
    """Knows what is in use, and does what retention decides.

    Args:
        running: the loop's attempts, live.
        keep_local: so many checkpoints of a trial stay here once the replica holds them too; None: all.
    """

    def __init__(
        self,
        state: ExperimentState,
        books: Books,
        custodian: Custodian,
        copies: ReplicaSink,
        *,
        ownership: Ownership | None,
        running: Mapping[str, Running],
        keep_local: int | None,
        class_api: bool,
        hosts: Hosts | None = None,
    ) -> None:
        self._state, self._books, self._custodian, self._copies = state, books, custodian, copies
        self._ownership, self._running = ownership, running
        self._keep_local, self._class_api = keep_local, class_api
        self._lent: dict[str, CheckpointRef] = {}
        """Clones -> the donor's checkpoint that was kept for them when they were last looked at."""
        self._readers: dict[str, Running] = {}
        """Attempts that may use checkpoints; those that do not any more are found out when it matters."""
        self._hosts = hosts
        self._safe: dict[str, tuple[int, int, int]] = {}
        """Trials whose newest checkpoint only their host has -> the newest one that the replica has."""
        self._fetched: set[tuple[str, tuple[int, int, int]]] = set()
        """Given up here in an earlier life, and brought here again."""

    def take_over(self) -> None:
        """Go on from what is kept, and with deletions that were decided before and are not known to be done."""
        self._custodian.take_over(self._state)
        self._lent = dict(self._state.borrowed)
        for trial in self._state.trials:
            for ref in trial.forgotten:
                self._delete_when_durable(ref)

    def best_start(self, trial: Trial) -> CheckpointRecord | None:
        """The donor's checkpoint of a clone that has none of its own yet, else the trial's own newest."""
        borrowed = trial.next_start or self._state.borrowed.get(trial.trial_id)
        own = None if trial.next_start else next(iter(candidates(trial)), None)
        if own is not None or borrowed is None:
            return own
        donor = self._holder(borrowed)
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
        holder = self._holder(record.ref)
        path = holder.directory / record.ref.name
        if fs.is_dir(path):
            self._custodian.check(path, record.digest, then)
        elif self._supplied(holder, record, path):
            then(None)  # hashed by the host that gets it
        elif self._hosts is not None and not self._copies.holds(holder, record):
            then("the host that had it is gone")
        elif self._copies.holds(holder, record):
            self._copies.fetch(holder, record, lambda problem: self._brought(holder, record, problem, then))
        else:
            self._custodian.check(path, record.digest, then)

    def _brought(self, holder: Trial, record: CheckpointRecord, problem: Problem, then: Then) -> None:
        path = holder.directory / record.ref.name
        if isinstance(problem, ev.ErrorInfo) and fs.is_dir(path):  # a job before it did its work, and could not say so
            self._custodian.check(path, record.digest, then)
            return
        if problem is None:
            self._fetched.add((holder.trial_id, record.order))
        then(problem)

    def set_aside(self, record: CheckpointRecord, problem: str) -> None:
        """It is broken: not used, not counted."""
        seq = self._books.add(ev.CheckpointSetAside(record.ref, problem))
        self._custodian.gone(record.ref)
        holder = self._holder(record.ref)
        if self._hosts is not None and not self._copies.holds(holder, record):
            self._copies.forgotten(holder, record.ref, seq)  # it went with its host: nothing is to be copied

    def reads(self, run: Running) -> None:
        """An attempt may use checkpoints: it is about to start, has started, or has opened one."""
        self._readers[run.trial.trial_id] = run

    # --- saves ----------------------------------------------------------------------------------------------

    def refusal(self, run: Running, size: int, result: dict[str, Any]) -> str | None:
        """Why a save of so many bytes does not fit into the budget, or None: it does."""
        return self._custodian.refusal(run.trial, size, result, self.in_use(run))

    def published(self, run: Running, body: wire.SavePublished, seq: int) -> str | None:
        """A save is on the disk, and the fact `seq` says so; returns why it cannot stay, or None."""
        trial, record = run.trial, run.trial.checkpoints[-1]
        # Of a class trainable's save nobody knew the size before.
        problem = self._custodian.saved(trial, record, self.in_use(), admitted=not self._class_api)
        if problem is not None:
            self._custodian.gone(body.ref)
            self._let_go(body.ref, BUDGET)
            self._books.add(ev.PublishFailed(body.ref, problem))  # what was asked for is not kept
            return problem
        self._copies.published(trial, record, seq)
        self._look_what_is_safe(trial)
        self.forget(trial)
        self.given_back(trial)
        return None

    def not_saved(self, trial: Trial, body: wire.SaveFailed) -> None:
        self._books.add(ev.PublishFailed(body.ref, body.error, body.raised))
        self._custodian.not_saved(trial)

    def left_behind(self, run: Running) -> Iterator[wire.SavePublished]:
        """What an attempt published before it died and did not tell."""
        trial = run.trial
        known = {record.order for record in trial.checkpoints} | {ref.order for ref in trial.forgotten}
        for found in self._custodian.after_death(trial.directory):
            ref = found.ref
            mine = (trial.trial_id, trial.attempt_generation, run.attempt)
            if (ref.trial_id, ref.generation, ref.attempt) == mine and ref.order not in known:
                yield wire.SavePublished(ref, found.manifest.bytes, found.digest)

    def attempt_ended(self, trial: Trial) -> None:
        """Nothing of this attempt is on its way any more."""
        self._custodian.attempt_ended(trial)
        self._copies.ended(trial)
        self.given_back(trial)
        start = trial.started_from
        if (
            start is not None
            and start.trial_id != trial.trial_id
            and self._state.trials.get(start.trial_id) is not None
        ):
            self._decide_again(self._holder(start))  # a clone of this one may be another's by now

    def given_back(self, trial: Trial) -> None:
        """A clone may not need its donor's checkpoint any more: retention decides about that again."""
        before, now = self._lent.pop(trial.trial_id, None), self._state.borrowed.get(trial.trial_id)
        if now is not None:
            self._lent[trial.trial_id] = now
        if before is not None and before != now:
            self._decide_again(self._holder(before))

    # --- what goes --------------------------------------------------------------------------------------------

    def forget(self, trial: Trial) -> None:
        """Let go of what the settings do not keep."""
        for ref, why in self._custodian.to_forget(trial, self.in_use()):
            self._let_go(ref, why)

    def opened(self, run: Running, ref: CheckpointRef) -> None:
        """A trial reads a checkpoint, which stays meanwhile. One of another experiment is not kept, or let go, here."""
        if self._state.trials.get(ref.trial_id) is not None:
            run.open.add(ref)
            self.reads(run)

    def closed(self, run: Running, ref: CheckpointRef) -> None:
        """A trial reads a checkpoint no more: retention decides about it again."""
        if ref in run.open:
            run.open.discard(ref)
            self._decide_again(self._holder(ref))

    def _decide_again(self, trial: Trial) -> None:
        """One of its checkpoints is in use no more."""
        self.forget(trial)
        self.give_up_local(trial)

    def copied(self, trial: Trial) -> None:
        """The replica has another checkpoint of the trial."""
        if trial.trial_id in self._safe:
            self._look_what_is_safe(trial)
            self.forget(trial)
        self.give_up_local(trial)

    def give_up_local(self, trial: Trial) -> None:
        """Delete what the replica holds and this machine need not (`keep_local`)."""
        if self._keep_local is None:
            return
        used, again = self.in_use(), self._fetched
        here = [record for record in trial.checkpoints if record.here or (trial.trial_id, record.order) in again]
        for record in here[: -self._keep_local]:
            if self._copies.holds(trial, record) and (trial.trial_id, record.order) not in used:
                again.discard((trial.trial_id, record.order))
                self._books.add(ev.LocalCopyDropped(record.ref))
                self._delete_when_durable(record.ref)

    def in_use(self, but: Running | None = None) -> Used:
        """Checkpoints that attempts read, or started from, or are to start from, and have nothing of their own yet."""
        used: Used = set()
        for trial_id, run in list(self._readers.items()):
            start = None if run.published else run.trial.started_from
            if self._running.get(trial_id) is not run or (start is None and not run.open):
                del self._readers[trial_id]
                continue
            if start is not None and run is not but:
                used.add((start.trial_id, start.order))
            used |= {(ref.trial_id, ref.order) for ref in run.open}
        used |= set(self._safe.items())
        return used | {(ref.trial_id, ref.order) for ref in self._state.borrowed.values()}

    def _supplied(self, holder: Trial, record: CheckpointRecord, path: Path) -> bool:
        """Whether the host that is to use a checkpoint gets it without this one."""
        hosts = self._hosts
        return hosts is not None and (hosts.holds(path) or (hosts.uploads and self._copies.holds(holder, record)))

    def _look_what_is_safe(self, trial: Trial) -> None:
        """While only its host has the newest checkpoint, the newest that the replica has is in use: a host may die."""
        self._safe.pop(trial.trial_id, None)
        newest = trial.latest_checkpoint
        if newest is None or self._hosts is None or not self._hosts.uploads:
            return
        held = next((record for record in reversed(trial.checkpoints) if self._copies.holds(trial, record)), None)
        if held is not None and held is not newest and not fs.is_dir(trial.directory / newest.ref.name):
            self._safe[trial.trial_id] = held.order

    def _let_go(self, ref: CheckpointRef, why: str) -> None:
        seq = self._books.add(ev.CheckpointForgotten(ref, why))
        self._copies.forgotten(self._holder(ref), ref, seq)
        self._delete_when_durable(ref)  # forgotten first, deleted after: rule R2

    def _delete_when_durable(self, ref: CheckpointRef) -> None:
        path = self._holder(ref).directory / ref.name

        def go() -> None:
            if self._ownership is not None:
                self._ownership.check()
            self._custodian.delete(ref, path)

        self._books.when_durable(go)

    def _holder(self, ref: CheckpointRef) -> Trial:
        trial = self._state.trials.get(ref.trial_id)
        assert trial is not None, ref
        return trial

    # --- the end of the run ----------------------------------------------------------------------------------

    def copy_rest(self, clock: Clock, until: float, hurried: Callable[[], bool]) -> list[str]:
        """Wait until the replica has everything; returns what did not arrive, one line each.

        Given up when nothing arrives for `sync_timeout`, at the end of a preemption's grace time, and by Ctrl-C. What
        is deleted here meanwhile is told there too.
        """
        copies = self._copies

        def take(facts: Sequence[ev.CheckpointCopied]) -> bool:
            for fact in facts:
                self._books.add(fact)
                self.copied(self._holder(fact.ref))
            self._books.run_due()
            deleted = self._custodian.settled(DELETIONS_S) if copies.place and copies.complete else []
            for deletion in deleted:
                self._books.add(deletion)
            return bool(facts or deleted)

        def done() -> bool:
            if copies.complete or copies.given_up or clock.monotonic() >= until:
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
