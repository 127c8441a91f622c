"""Checkpoints on their way to a replica: what each step of the queue is as a job, and what came of it.

A checkpoint comes from here, or, of an experiment that this one continues, from where it lies (`CheckpointOrigin`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from trainables.transfer import agent
from trainables.transfer.agent import AnyJob, Done, Failed
from trainables.wire import CheckpointRef
from tuner.clock import Clock
from tuner.experiment import events as ev
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.syncer.queue import REFUSALS, Order, Queue, QueueStep, StepKind

STEPS = 3
"""Checkpoints that are moved at once."""


@dataclass(frozen=True, slots=True)
class CheckpointOrigin:
    """Where a checkpoint lies that neither this machine nor the replica has."""

    place: str
    key: str


class CheckpointStream:
    """Carries out the steps of a queue.

    Args:
        queue: says what comes next.
        place: the experiment's address over there, as facts name it.
        name: the experiment's.
        guard: the key whose appearance means that somebody has taken over.
        clock: its monotonic time is what the queue is told.
    """

    def __init__(self, queue: Queue, *, place: str, name: str, guard: str, clock: Clock) -> None:
        self._queue, self._place, self._name, self._guard, self._clock = queue, place, name, guard, clock
        self._later: dict[str, dict[Order, tuple[Trial, CheckpointRecord, int]]] = {}
        """Trial -> checkpoints that wait for the next period."""
        self._inherited: dict[Path, agent.CopyPayload] = {}
        """Those that are copied from elsewhere, not from here; until they are complete."""
        self._unpublished: dict[str, dict[Order, CheckpointRef]] = {}
        """Trial -> saves that its processes copy, or have copied, of which nobody knows whether they come to be."""
        self._sent: dict[Path, dict[str, str]] = {}
        """What they have copied of those that are to be complete."""
        self._refusals: list[str] = []
        """Why they could not be, as far as trying again may not help."""
        self.moving = 0
        """Steps under way."""
        self.reading: set[Path] = set()
        """Checkpoints here whose files are being read."""
        self.facts: list[ev.CheckpointCopied] = []
        """For the journal."""
        self.lost: list[ev.CheckpointSetAside] = []
        """Those that turned out missing or damaged where they were to come from."""
        self.abandoned: dict[Path, str] = {}
        """Those that are damaged where they lie, or lost, each with a line that says so."""

    # --- told -------------------------------------------------------------------------------------------

    def add(self, trial: Trial, record: CheckpointRecord, seq: int, *, tried: bool = False) -> None:
        """A checkpoint is to go there once the journal up to `seq` is; `tried`: a part of it may be there."""
        path = trial.directory / record.ref.name
        self._unpublished.get(trial.trial_id, {}).pop(record.order, None)
        self._queue.add(record.ref, path, record.bytes, seq=seq, now=self._clock.monotonic(), tried=tried)

    def inherit(
        self, trial: Trial, record: CheckpointRecord, origin: CheckpointOrigin, seq: int, *, tried: bool = False
    ) -> None:
        """As `add`, of one that is copied from where it lies."""
        key = f"{self._name}/{trial.dirname}/{record.ref.name}"
        self._inherited[trial.directory / record.ref.name] = agent.CopyPayload(
            place=origin.place, source=origin.key, key=key, digest=record.digest, guard=self._guard
        )
        self.add(trial, record, seq, tried=tried)

    def add_later(self, trial: Trial, record: CheckpointRecord, seq: int) -> None:
        """As `add`, at the next period."""
        self._later.setdefault(trial.trial_id, {})[record.order] = (trial, record, seq)

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

    def uploaded(self, trial: Trial, ref: CheckpointRef, sent: dict[str, str]) -> None:
        """They do so no more."""
        awaited = ref.order in self._unpublished.get(trial.trial_id, {}) or self._queue.wants(ref)
        if self._queue.release(ref) and awaited:
            self._sent[trial.directory / ref.name] = sent

    def attempt_ended(self, trial: Trial) -> None:
        """No process of it is left; what it saved and did not publish never will be."""
        self._queue.release_all(trial.trial_id)
        for ref in list(self._unpublished.pop(trial.trial_id, {}).values()):
            self.forget(trial, ref, 0)
        if trial.status == Trial.TERMINATED:
            self._add_what_waits(trial.trial_id)

    def forget(self, trial: Trial, ref: CheckpointRef, seq: int) -> None:
        if self._later.get(trial.trial_id, {}).pop(ref.order, None) is not None:
            return  # nothing of it was copied
        if trial.status == Trial.TERMINATED:
            self._add_what_waits(trial.trial_id)
        ended, path = trial.status == Trial.TERMINATED, trial.directory / ref.name
        self.abandoned.pop(path, None)  # nobody waits for it any more
        self._unpublished.get(trial.trial_id, {}).pop(ref.order, None)
        self._sent.pop(path, None)
        self._queue.forget(ref, path, seq=seq, ended=ended)

    def ended(self, step: QueueStep, answer: Done | Failed) -> None:
        """A step is done, or is not."""
        self.moving -= 1
        if isinstance(answer, Done):
            self._queue.done(step)
            if step.kind is StepKind.MANIFEST:
                self._inherited.pop(step.path, None)
                self._sent.pop(step.path, None)
                self.reading.discard(step.path)
                self.facts.append(ev.CheckpointCopied(step.ref, self._place))
            return
        self._queue.failed(step, answer.message, self._clock.monotonic(), transient=answer.transient)
        if step.kind is StepKind.PAYLOAD:
            self.reading.discard(step.path)  # until it is tried again
        inherited = step.path in self._inherited and step.kind is not StepKind.REMOVE
        if inherited and not answer.transient and not answer.type.startswith("Checkpoint"):
            self._refusals.append(answer.message)
        if step.kind is not StepKind.REMOVE and answer.type.startswith("Checkpoint"):
            if inherited:
                del self._inherited[step.path]
                self.lost.append(ev.CheckpointSetAside(step.ref, answer.message))
            elif self._queue.wants(step.ref):
                self.abandoned[step.path] = f"checkpoint {step.path}: {answer.message}"
            self._queue.abandon(step.ref)
            self.reading.discard(step.path)

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
    def room(self) -> bool:
        """Whether another step may begin."""
        return self.moving < STEPS

    def begin(self, now: float) -> Iterable[tuple[QueueStep, AnyJob]]:
        """The steps that begin now, each with its job."""
        while self.room and (step := self._queue.next(now)) is not None:
            self.moving += 1
            yield step, self._job(step)

    def missing(self) -> list[str]:
        """What did not arrive, one line each."""
        return [f"checkpoint {ref.trial_id}/{ref.name}" for ref in self._queue.missing()] + [*self.abandoned.values()]

    def _job(self, step: QueueStep) -> AnyJob:
        key = f"{self._name}/{step.path.parent.name}/{step.ref.name}"
        inherited = self._inherited.get(step.path) if step.kind is not StepKind.REMOVE else None
        if inherited is not None:
            whole = step.kind is StepKind.MANIFEST
            return agent.CopyManifest(**msgspec.structs.asdict(inherited)) if whole else inherited
        if step.kind is StepKind.PAYLOAD:
            self.reading.add(step.path)
            sent = self._sent.get(step.path, {})
            return agent.PushPayload(directory=str(step.path), key=key, sent=sent, guard=self._guard)
        if step.kind is StepKind.MANIFEST:
            return agent.PushManifest(directory=str(step.path), key=key, guard=self._guard)
        return agent.DeleteCheckpoint(key=key, guard=self._guard)
