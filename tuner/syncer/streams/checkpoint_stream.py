"""Checkpoints on their way to a replica: what each step of the queue is as a job, and what came of it.

A checkpoint comes from here, or, of an experiment that this one continues, from where it lies (`CheckpointOrigin`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from trainables.store import fs
from trainables.store.manifest import MANIFEST_NAME
from trainables.transfer import transfer_jobs
from trainables.transfer.transfer_jobs import AnyJob, Done, JobFailed
from trainables.wire import CheckpointRef, SaveUploaded
from tuner.experiment import events as ev
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.syncer.inventory import CheckpointOrigin, Inventory
from tuner.syncer.queue import REFUSALS, Queue
from tuner.syncer.streams.stream import Answer, ReplicaContext, Stream
from tuner.syncer.trial_lane import Order, QueueStep, StepKind

log = logging.getLogger(__name__)

STEPS = 3
"""Checkpoints that are moved at once."""


class CheckpointStream(Stream):
    """Carries out the steps of a queue.

    Args:
        queue: says what comes next.
    """

    def __init__(self, context: ReplicaContext, queue: Queue) -> None:
        self._context, self._queue = context, queue
        self._later: dict[str, dict[Order, tuple[Trial, CheckpointRecord, int]]] = {}
        """Trial -> checkpoints that wait for the next period."""
        self._inherited: dict[Path, transfer_jobs.CopyPayload] = {}
        """Those that are copied from elsewhere, not from here; until they are complete."""
        self._unpublished: dict[str, dict[Order, CheckpointRef]] = {}
        """Trial -> saves that its processes copy, or have copied, of which nobody knows whether they come to be."""
        self._unknown: dict[str, Sequence[str]] = {}
        """Directory of a trial that is not in the journal yet -> what a killed driver copied of its checkpoints."""
        self._sent: dict[Path, dict[str, str]] = {}
        """What they have copied of those that are to be complete."""
        self._told_unsent: set[str] = set()
        """Trials that run, of which was said that their workers cannot bring there what they save."""
        self._refusals: list[str] = []
        """Why they could not be copied from elsewhere, as far as trying again may not help."""
        self._moving = self._looking = 0
        """Steps of the queue that are under way; looks at what is there, and what follows from them."""
        self.reading: set[Path] = set()
        """Checkpoints here whose files are being read."""
        self.facts: list[ev.CheckpointCopied] = []
        """For the journal; the caller empties it."""
        self.lost: list[ev.CheckpointSetAside] = []
        """Those that turned out missing or damaged where they were to come from; the caller empties it."""
        self._abandoned: dict[Path, str] = {}
        """Those that are damaged where they lie, or lost, each with a line that says so."""

    def take_up(self, state: ExperimentState, held: Inventory) -> None:
        self._unknown = dict(held.unknown)
        seq = self._context.journal.last_seq
        for trial in state.trials:
            for record in trial.checkpoints:
                self._take_up(trial, record, held, seq)
            for ref in trial.forgotten if held.complete is None else ():
                self.forget(trial, ref, seq)
            if trial.status == Trial.TERMINATED:
                self._queue.end(trial.trial_id)
        for trial, ref, whole in held.forgotten:
            if whole:
                self._queue.known(trial.trial_id, [ref.order])
            self.forget(trial, ref, seq)

    def _take_up(self, trial: Trial, record: CheckpointRecord, held: Inventory, seq: int) -> None:
        name, uri = record.ref.name, self._context.uri
        if held.complete is None:
            is_there, tried = uri in record.copies, True
        else:
            is_there = name in held.complete.get(trial.dirname, ())
            tried = name in held.partial.get(trial.dirname, ())
        if is_there:
            self._queue.known(trial.trial_id, [record.order])
            if uri not in record.copies:  # a driver was killed before it could say so
                self.facts.append(ev.CheckpointCopied(record.ref, uri))
            if trial.status != Trial.TERMINATED and self._context.can.reuse:
                learn = transfer_jobs.Learn(key=self._context.key(trial.dirname, name))
                self._looking += 1
                self._context.submit(learn, partial(self._learned, trial, record))
        elif fs.is_dir(trial.directory / name):
            self.add(trial, record, seq, tried=tried)
        elif (origin := held.origins.get((trial.dirname, name))) is not None:
            self._inherit(trial, record, origin, seq, tried=tried)

    def _learned(self, trial: Trial, record: CheckpointRecord, answer: Answer) -> None:
        """What nobody could use there is sent again, if it is here."""
        self._looking -= 1
        unusable = isinstance(answer, JobFailed) and answer.unusable
        if unusable and self._context.can.delete and fs.is_dir(trial.directory / record.ref.name):
            # A manifest is only laid where there is none: first the one goes that cannot be read.
            key = self._context.key(trial.dirname, record.ref.name, MANIFEST_NAME)
            broken = transfer_jobs.Delete(keys=[key], guard=self._context.guard)
            self._looking += 1
            self._context.submit(broken, partial(self._send_again, trial, record))

    def _send_again(self, trial: Trial, record: CheckpointRecord, answer: Answer) -> None:
        self._looking -= 1
        if isinstance(answer, Done) and any(kept is record for kept in trial.checkpoints):
            self._queue.unknown(record.ref)
            self.add(trial, record, self._context.journal.last_seq, tried=True)

    # --- told -------------------------------------------------------------------------------------------

    def add(self, trial: Trial, record: CheckpointRecord, seq: int, *, tried: bool = False) -> None:
        """A checkpoint is to go there once the journal up to `seq` is; `tried`: a part of it may be there."""
        path = trial.directory / record.ref.name
        self._unpublished.get(trial.trial_id, {}).pop(record.order, None)
        self._queue.add(record.ref, path, record.bytes, seq=seq, now=self._context.clock.monotonic(), tried=tried)

    def _inherit(
        self, trial: Trial, record: CheckpointRecord, origin: CheckpointOrigin, seq: int, *, tried: bool
    ) -> None:
        """As `add`, of one that is copied from where it lies."""
        key, guard = self._context.key(trial.dirname, record.ref.name), self._context.guard
        self._inherited[trial.directory / record.ref.name] = transfer_jobs.CopyPayload(
            place=origin.place, source=origin.key, key=key, digest=record.digest, guard=guard
        )
        self.add(trial, record, seq, tried=tried)

    def published(self, trial: Trial, record: CheckpointRecord, seq: int) -> None:
        if self._context.config.sync_on_checkpoint:
            self.add(trial, record, seq)
        else:
            self._later.setdefault(trial.trial_id, {})[record.order] = (trial, record, seq)

    def started(self, trial: Trial) -> None:
        for number, name in enumerate(self._unknown.pop(trial.dirname, ()), start=1):
            self.forget(trial, CheckpointRef(trial.trial_id, name, 0, 0, -number, 0), self._context.journal.last_seq)

    def period(self) -> None:
        for trial_id in list(self._later):
            self._add_what_waits(trial_id)

    def _add_what_waits(self, trial_id: str) -> None:
        """Before its trial's older ones may go, too: of an ended trial they go once nothing is on its way."""
        for trial, record, seq in self._later.pop(trial_id, {}).values():
            self.add(trial, record, seq)

    def uploading(self, ref: CheckpointRef) -> None:
        """The processes that save it copy it themselves."""
        self._unpublished.setdefault(ref.trial_id, {})[ref.order] = ref
        self._queue.hold(ref)

    def uploaded(self, trial: Trial, message: SaveUploaded) -> None:
        """They do so no more."""
        ref = message.ref
        awaited = ref.order in self._unpublished.get(trial.trial_id, {}) or self._queue.wants(ref)
        if self._queue.release(ref) and awaited:
            self._sent[trial.directory / ref.name] = message.sent
        if message.problem and trial.trial_id not in self._told_unsent:
            self._told_unsent.add(trial.trial_id)
            log.warning(
                "%s: workers of %s could not bring there what they saved, and it is sent with the rest: %s",
                self._context.uri,
                trial.name,
                message.problem,
            )

    def attempt_ended(self, trial: Trial) -> None:
        """No process of it is left; what it saved and did not publish never will be."""
        self._queue.release_all(trial.trial_id)
        for ref in list(self._unpublished.pop(trial.trial_id, {}).values()):
            self.forget(trial, ref, 0)
        self._told_unsent.discard(trial.trial_id)
        if trial.status == Trial.TERMINATED:
            self._add_what_waits(trial.trial_id)
            self._queue.end(trial.trial_id)

    def forget(self, trial: Trial, ref: CheckpointRef, seq: int) -> None:
        if self._later.get(trial.trial_id, {}).pop(ref.order, None) is not None:
            return  # nothing of it was copied
        if trial.status == Trial.TERMINATED:
            self._add_what_waits(trial.trial_id)
        ended, path = trial.status == Trial.TERMINATED, trial.directory / ref.name
        self._abandoned.pop(path, None)  # nobody waits for it any more
        self._unpublished.get(trial.trial_id, {}).pop(ref.order, None)
        self._sent.pop(path, None)
        self._queue.forget(ref, path, seq=seq, ended=ended)

    # --- asked ------------------------------------------------------------------------------------------

    @property
    def inherited(self) -> int:
        """How many are still to be copied from elsewhere."""
        return len(self._inherited)

    @property
    def refusal(self) -> str | None:
        """Why those cannot be copied, once that was said so often that trying again will not help."""
        return self._refusals[-1] if len(self._refusals) >= REFUSALS else None

    @property
    def drained(self) -> bool:
        return self._queue.empty and not (self._moving or self._looking)

    @property
    def refused(self) -> bool:
        return not self._looking and self._queue.only_refused

    @property
    def undeleted(self) -> str:
        """What is to go from there and did not yet; "" where nothing is."""
        left = [f"{ref.trial_id}/{ref.name}" for ref in self._queue.removals()]
        return ", ".join(left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")

    def missing(self) -> list[str]:
        return [f"checkpoint {ref.trial_id}/{ref.name}" for ref in self._queue.missing()] + [*self._abandoned.values()]

    # --- jobs and their answers ---------------------------------------------------------------------------

    def due_at(self, now: float) -> float | None:
        return self._queue.due(now) if self._moving < STEPS else None

    def start_jobs(self, now: float) -> bool:
        started = False
        while self._moving < STEPS and (step := self._queue.next(now)) is not None:
            self._moving += 1
            self._context.submit(self._job(step), partial(self._ended, step))
            started = True
        return started

    def _job(self, step: QueueStep) -> AnyJob:
        key, guard = self._context.key(step.path.parent.name, step.ref.name), self._context.guard
        if step.kind is StepKind.REMOVE:
            return transfer_jobs.DeleteCheckpoint(key=key, guard=guard)
        inherited = self._inherited.get(step.path)
        if step.kind is StepKind.MANIFEST:
            if inherited is not None:
                return transfer_jobs.CopyManifest(**msgspec.structs.asdict(inherited))
            return transfer_jobs.PushManifest(directory=str(step.path), key=key, guard=guard)
        if inherited is not None:
            return inherited
        self.reading.add(step.path)
        sent = self._sent.get(step.path, {})
        return transfer_jobs.PushPayload(directory=str(step.path), key=key, sent=sent, guard=guard)

    def _ended(self, step: QueueStep, answer: Answer) -> None:
        self._moving -= 1
        if isinstance(answer, JobFailed):
            self._queue.failed(step, answer.message, self._context.clock.monotonic(), transient=answer.transient)
            if step.kind is not StepKind.REMOVE:
                self._failed(step, answer)
            return
        self._queue.done(step)
        if step.kind is StepKind.MANIFEST:
            self._inherited.pop(step.path, None)
            self._sent.pop(step.path, None)
            self.reading.discard(step.path)
            self.facts.append(ev.CheckpointCopied(step.ref, self._context.uri))

    def _failed(self, step: QueueStep, answer: JobFailed) -> None:
        if step.kind is StepKind.PAYLOAD:
            self.reading.discard(step.path)  # until it is tried again
        inherited = step.path in self._inherited
        if answer.of_checkpoint:
            if inherited:
                del self._inherited[step.path]
                self.lost.append(ev.CheckpointSetAside(step.ref, answer.message))
            elif self._queue.wants(step.ref):
                self._abandoned[step.path] = f"checkpoint {step.path}: {answer.message}"
            self._queue.abandon(step.ref)
            self.reading.discard(step.path)
        elif inherited and not answer.transient:
            self._refusals.append(answer.message)
