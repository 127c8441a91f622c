"""The driver's end of a replica: what the loop tells it, and asks. `ReplicaSink` alone is that of a run without one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Union

from trainables.quick_dataclass import dataclass
from trainables.wire import CheckpointRef, SaveUploaded
from tuner.experiment import events as ev
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord

Problem = Union[str, ev.ErrorInfo, None]
"""None: a checkpoint is here and whole. Text: it is missing or damaged. An error: it is not known to be either."""
Then = Callable[[Problem], None]


@dataclass(frozen=True, slots=True)
class ReplicaBacklog:
    """How far the copy is behind, for people."""

    checkpoints: int = 0
    bytes: int = 0
    error: str | None = None
    """Why the last try failed; None once one succeeded."""


class ReplicaSink:
    """Where facts of checkpoints go; `tuner.syncer.replica.Replica` is one that copies them."""

    @property
    def place(self) -> str:
        """The replica's address, as facts and messages name it; "" without a replica."""
        return ""

    @property
    def trouble(self) -> str:
        """What the place, or the way there, said last when something failed; "" where nothing did."""
        return ""

    # --- told -------------------------------------------------------------------------------------------

    def started(self, trial: Trial) -> None:
        """An attempt of the trial runs. Nothing is touched in the replica before the first does."""

    def uploading(self, trial: Trial, ref: CheckpointRef) -> None:
        """A save is on its way, and the processes that made it copy it themselves, until `uploaded` or `ended`."""

    def uploaded(self, trial: Trial, message: SaveUploaded) -> None:
        """They copy nothing of it any more."""

    def published(self, trial: Trial, record: CheckpointRecord, seq: int) -> None:
        """A checkpoint is complete here, and the fact `seq` says so."""

    def forgotten(self, trial: Trial, ref: CheckpointRef, seq: int) -> None:
        """Retention let go of a checkpoint, and the fact `seq` says so."""

    def ended(self, trial: Trial) -> None:
        """The trial is over, or this attempt is."""

    def touched(self, trials: Iterable[Trial]) -> None:
        """The journal is about to be compacted: these trials' own files hold what it drops."""

    def heartbeat(self) -> None:
        """Ten seconds have passed. Raises OwnedElsewhereError."""

    def closing(self) -> None:
        """Nothing more will be told: everything goes there now."""

    # --- asked ------------------------------------------------------------------------------------------

    def finished(self) -> list[ev.CheckpointCopied]:
        """Go on: take what ended, start what can be started; facts to journal. Raises OwnedElsewhereError."""
        return []

    def due(self) -> float | None:
        """When to call `finished` although nothing was heard, in monotonic seconds; None: not by itself."""
        return None

    def holds(self, trial: Trial, record: CheckpointRecord) -> bool:
        """The checkpoint is complete in the replica."""
        return False

    def fetch(self, trial: Trial, record: CheckpointRecord, then: Then) -> None:
        """Bring a checkpoint here, once for all who ask; `finished` calls `then(problem)`, None: it was hashed too."""
        raise NotImplementedError

    def reads(self, path: Path) -> bool:
        """That checkpoint's files are being copied just now; asked from other threads too."""
        return False

    def behind(self, trial: Trial) -> bool:
        """So much of the trial is to come that it should wait before it saves more."""
        return False

    @property
    def backlog(self) -> ReplicaBacklog:
        return ReplicaBacklog()

    # --- the end ----------------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Everything is there."""
        return True

    @property
    def given_up(self) -> bool:
        """For so long nothing has arrived that it is not waited for any longer."""
        return False

    def wait(self, until: float | None) -> None:
        """Return when something ended, at the latest at that monotonic time, and after a second."""

    @property
    def missing(self) -> list[str]:
        """What did not arrive, one line each."""
        return []

    def release(self) -> None:
        """Say in the replica that this driver is done, if it can be said soon, and end what works for it."""
