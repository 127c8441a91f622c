"""One trial's checkpoints on their way to a replica: which payload, manifest or removal is the next step. Pure."""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from pathlib import Path

from trainables.net.backoff import BackOff
from trainables.quick_dataclass import dataclass
from trainables.wire import CheckpointRef

Order = tuple[int, int, int]


class StepKind(Enum):
    """What a step does."""

    PAYLOAD = "payload"
    MANIFEST = "manifest"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class QueueStep:
    """One thing to do on the replica."""

    kind: StepKind
    ref: CheckpointRef
    path: Path
    """Where the checkpoint lies, or lay, on its host."""
    bytes: int = 0


@dataclass(slots=True)
class WaitingUpload:
    ref: CheckpointRef
    path: Path
    bytes: int
    seq: int
    since: float
    sent: bool = False
    """The payload is there; the manifest is not."""
    tried: bool = False
    """Something of it may be there."""
    forgotten: bool = False
    """Let go of while it was under way."""


@dataclass(slots=True)
class WaitingRemoval:
    ref: CheckpointRef
    path: Path
    seq: int
    ended: bool


@dataclass(slots=True)
class TrialLane:
    """One trial: its steps are done one after another."""

    uploads: dict[Order, WaitingUpload] = field(default_factory=dict)
    removals: dict[Order, WaitingRemoval] = field(default_factory=dict)
    present: set[Order] = field(default_factory=set)
    held: set[Order] = field(default_factory=set)
    parts: set[Order] = field(default_factory=set)
    """Those that were held: something of them may be there."""
    running: QueueStep | None = None
    back_off: BackOff = field(default_factory=BackOff)
    asked: int = 0
    """The fact that it waits for in the replica's journal, as far as it is queued for it."""
    ended: bool = False

    @property
    def idle(self) -> bool:
        return not self.uploads and not self.removals and self.running is None

    def next_step(self, journal: int) -> tuple[QueueStep | None, int | None]:
        """(what can be done, the first fact that something waits for), while the replica has the facts up to `journal`.

        A manifest, then a removal, then the payload of the newest: it is what a resume wants.
        """
        waits = []
        for upload in self.uploads.values():
            if upload.sent and upload.seq <= journal:
                return QueueStep(StepKind.MANIFEST, upload.ref, upload.path), None
            if upload.sent:
                waits.append(upload.seq)
        for removal in self.removals.values():
            if not self._may_go(removal):
                continue
            if removal.seq <= journal:
                return QueueStep(StepKind.REMOVE, removal.ref, removal.path), None
            waits.append(removal.seq)
        waits_for = min(waits, default=None)
        waiting = [order for order in self.uploads if order not in self.held]
        if not waiting or any(upload.sent for upload in self.uploads.values()):
            return None, waits_for  # its manifest first: what comes meanwhile may supersede what waits
        upload = self.uploads[max(waiting)]
        return QueueStep(StepKind.PAYLOAD, upload.ref, upload.path, upload.bytes), waits_for

    def _may_go(self, removal: WaitingRemoval) -> bool:
        """Whether it is not the last complete one there that a resume could take (design rule R2)."""
        order = removal.ref.order
        if order in self.uploads or order in self.held:
            return False  # it is under way, and has to be brought to its end first
        if removal.ended:
            return not self.uploads
        return order not in self.present or any(present > order for present in self.present)
