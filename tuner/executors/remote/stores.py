"""The stores of all hosts as one: what lies where, and how it gets to where it is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from trainables.errors import CheckpointError, CheckpointNotFoundError, PublishError, TransferError
from trainables.net.failed import FailureKind
from trainables.store import delete as delete_here
from trainables.store import fs
from trainables.transfer.transfer_jobs import AnyJob, Done, JobFailed
from trainables.wire import CheckpointRef
from tuner.executors.remote.host import RemoteHost
from tuner.executors.remote.transfers import Carrier, place_of_restored


class Stores:
    """This host's disk and those of the others.

    Args:
        hosts: by node; changed by others.
        carrier: brings checkpoints from one to another.
    """

    def __init__(self, hosts: Mapping[str, RemoteHost], carrier: Carrier) -> None:
        self._hosts, self._carrier = hosts, carrier
        self.root = Path()
        """The experiment's directory, on every host."""
        self.uploads = False
        """Hosts copy their checkpoints to the replica, and get them from there, themselves."""

    def holds(self, path: Path) -> bool:
        """A host that lives has the checkpoint that would lie at that path here."""
        return any(host.store.holds(path) for host in list(self._hosts.values()) if not host.lost)

    def place_on(self, host: RemoteHost, source: Path) -> Path:
        """Where a checkpoint of this host lies on another one."""
        within = host.shared or source.is_relative_to(self.root)
        return source if within else place_of_restored(self.root, source)

    def delete(self, path: Path) -> bool:
        """Delete a checkpoint here and on every host that has it; False: it is open on one of them."""
        done = delete_here.delete(path)
        for other in list(self._hosts.values()):
            if other.store.holds(path):
                done = other.store.delete(path) and done
        return done

    def upload(self, path: Path, job: AnyJob, then: Callable[[Done | JobFailed], None]) -> bool:
        """Have the host of a checkpoint do a job of the replica; False: it lies here."""
        if fs.is_dir(path):
            return False
        host = next((host for host in list(self._hosts.values()) if host.store.holds(path)), None)
        if host is None:
            then(JobFailed(FailureKind.CHECKPOINT_LOST, f"{path}: the host that had it is gone"))
        else:
            host.store.upload(job, then)
        return True

    def supply(self, host: RemoteHost, source: Path, digest: str) -> None:
        """Have the checkpoint of an attempt on its host, whole, from wherever it is nearest.

        Raises CheckpointError when there is none that is whole, TransferError.
        """
        target = self.place_on(host, source)
        with self._carrier.on(host, target):
            if fs.is_dir(source):
                self._carrier.bring_there(host, source, target, self.root)
            elif host.store.check(target, digest) is not None:
                self._supply_from_afar(host, target, digest)

    def _supply_from_afar(self, host: RemoteHost, target: Path, digest: str) -> None:
        missing = f"{target}: no host has it, and no replica"
        if self.uploads:
            key = f"{self.root.name}/{target.relative_to(self.root).as_posix()}"
            try:
                host.store.fetch(key, target, digest)
                return
            except PublishError:
                raise  # that is the host's disk
            except CheckpointError as error:
                missing = f"{target}: no other host has it, and not the replica either: {error}"
        other = next(
            (other for other in list(self._hosts.values()) if other is not host and other.store.holds(target)), None
        )
        if other is None:
            raise CheckpointNotFoundError(missing)
        self._carrier.bring_here(other, target, self.root, digest)
        self._carrier.bring_there(host, target, target, self.root)

    def bring(self, node: str, dirname: str, ref: CheckpointRef, digest: str) -> str | None:
        """Copy a checkpoint of another host here, now; why that was not possible, or None."""
        host = self._hosts.get(node)
        if host is None:
            return "the node that has it is gone"
        try:
            self._carrier.bring_here(host, self.root / dirname / ref.name, self.root, digest)
        except (TransferError, CheckpointError, OSError) as error:
            return str(error)
        return None

    def drop(self, node: str, dirname: str, ref: CheckpointRef) -> None:
        """Delete what another host has and nobody needs. Raises KeyError when it is gone, OSError."""
        self._hosts[node].store.delete(self.root / dirname / ref.name)

    def drop_later(self, host: RemoteHost, path: Path) -> None:
        """The same beside the caller; what cannot be deleted is left to the next start."""

        def drop() -> None:
            host.store.delete(path)

        self._carrier.beside(host, drop, lambda error: None)
