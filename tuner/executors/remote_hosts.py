"""What an executor can be asked whose attempts run on other hosts, which may have disks of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from trainables.quick_dataclass import dataclass
from trainables.wire import CheckpointRef

if TYPE_CHECKING:
    from trainables.transfer.client import TransferClient


@dataclass(frozen=True, slots=True)
class ExperimentPlace:
    """Where an experiment lies, as the driver has it."""

    root: Path
    record: Path
    """The generation's record: a host that reads the same id there sees the driver's own directory."""
    id: str
    experiment: str
    """Id of the experiment."""
    older: tuple[str, ...] = ()
    """Ids of earlier generations: what still runs with one of these marks is ended."""


@dataclass(frozen=True, slots=True)
class Uploading:
    """The place to which hosts copy their checkpoints themselves."""

    arguments: dict[str, Any]
    """Of `trainables.transfer.open.open_backend`."""
    timeout_s: float
    needed: bool
    """A host that cannot use it is an error; else everything goes through the driver."""


class RemoteHosts(Protocol):
    """The hosts on which the attempts of one run are, from `take_place` to `release`."""

    found: Sequence[tuple[str, str, CheckpointRef, str]]
    """(host, trial directory, checkpoint, digest) of what lay on the nodes' own disks at the start."""
    experiment: str
    """Its id, with which those of its trials begin."""

    def check_fits(self, resources: Mapping[str, float], trainable: Any) -> None:
        """Raise ResourceError, naming the numbers, if the nodes can never hold what a trial asks for."""

    def expect(self, attempts: float) -> None:
        """So many attempts more would begin now if there were room for them; told before room is asked for."""

    def take_place(
        self,
        place: ExperimentPlace,
        *,
        sync: Mapping[str, Any],
        upload_to: Uploading | None,
        keeps: Callable[[str, CheckpointRef], bool],
        say: Callable[[str], None],
    ) -> None:
        """Look at every node, and end what is left of older owners there; fills `found`.

        Args:
            sync: how checkpoints come here: `syncer`, `options`, `ssh_key`, `ssh_port` of `open_backend`.
            upload_to: where hosts copy their checkpoints themselves; None: they come here.
            keeps: whether a checkpoint in that trial directory is needed; asked of nodes that come later.
            say: where people are told what they should know.

        Raises SettingError where a node cannot write to the experiment's directory.
        """

    @property
    def uploads(self) -> bool:
        """Hosts copy their checkpoints to the replica, and get them from there, themselves."""

    def uploader(self, home: TransferClient) -> TransferClient:
        """The replica's uploader, of which hosts do the part that concerns their own files."""

    def holds(self, path: Path) -> bool:
        """A host that lives has the checkpoint that would lie at that path here."""

    def delete(self, path: Path) -> bool:
        """Delete a checkpoint here and on every host that has it; from any thread. `Delete` of the deleter."""

    def bring(self, host: str, dirname: str, ref: CheckpointRef, digest: str) -> str | None:
        """Copy a checkpoint of another host here, now; why that was not possible, or None."""

    def drop(self, host: str, dirname: str, ref: CheckpointRef) -> None:
        """Delete what another host has and nobody needs. Raises KeyError when it is gone, OSError."""

    def release(self) -> None:
        """Let go of the nodes: until then their stores do what they are asked for. Doing it twice is no error."""
