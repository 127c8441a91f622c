"""Does the jobs of a transfer agent on one back end, in whatever process."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from trainables.errors import AccessRefusedError, CheckpointError, ObjectNotFoundError, TransferError
from trainables.net.failed import FailureKind
from trainables.places import split_query
from trainables.transfer import between, remote_checkpoints, transfer_jobs
from trainables.transfer.backend import Backend
from trainables.transfer.open import open_backend
from trainables.transfer.transfer_jobs import AnyJob, Done, JobFailed

LOOK_S = 10.0
"""At most that often it is looked at all that lies beside the guard: a listing costs more than a look for one key."""
_PARTS = 2
"""Of so many of the last checkpoints to which a part was brought, what has not changed is copied at the place."""


class JobWorker:
    """Does jobs on one back end; safe to use from several threads.

    Args:
        arguments: of `open_backend`, as `backend` was opened with.
    """

    def __init__(self, backend: Backend, arguments: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.backend = backend
        self._arguments = arguments
        self._others: dict[str, Backend] = {}
        self._opening = threading.Lock()
        self._looked: dict[str, float] = {}
        """Guard -> monotonic time of the last look at what lies beside it."""
        self._index = remote_checkpoints.ContentIndex()
        self._parts: deque[str] = deque()
        self._witness: tuple[str, str] | None = None
        """That this is the run's place was seen by it."""
        self._receipts: dict[str, dict[str, str]] = {}
        """Of payloads that did not arrive whole: what did. A second try leaves it out."""

    def do(self, job: AnyJob, moved: Callable[[int], None]) -> Done | JobFailed:
        """Do one job, whatever comes of it."""
        try:
            if job.guard and self.backend.can.list and (owner := self._owner(job.guard)):
                text = f"{self.backend.url(owner)} was written by another driver"
                return JobFailed(FailureKind.OWNER_TAKEN, text, id=job.id)
            return Done(job.id, self._do(job, moved))
        except AccessRefusedError as error:
            self.backend.renew()  # expired credentials are read anew, and the next try has them
            return JobFailed.of(error, id=job.id)
        except (CheckpointError, OSError, ValueError) as error:
            return JobFailed.of(error, id=job.id)
        except Exception as error:  # a user's function or Syncer may raise anything; the agent lives on
            return JobFailed.of(error, f"{type(error).__name__}: {error}", id=job.id)

    def close(self) -> None:
        """Let go of connections."""
        for backend in (self.backend, *self._others.values()):
            backend.close()

    def _owner(self, guard: str) -> str | None:
        """The key that another owner has written, or None."""
        if self.backend.exists(guard):
            return guard
        directory, _, name = guard.rpartition("/")
        now = time.monotonic()
        if _number(name) is None or now - self._looked.get(guard, -LOOK_S) < LOOK_S:
            return None
        found = next((other for other in self.backend.children(directory) if _is_higher(other, name)), None)
        if found is not None:
            return f"{directory}/{found}"
        self._looked[guard] = now  # not before it succeeded
        return None

    def _other(self, place: str) -> Backend:
        """The back end of another place, opened once."""
        if place == self.backend.uri:
            return self.backend
        with self._opening:
            if place not in self._others:
                self._others[place] = open_backend(**{**self._arguments, "place": place})
            return self._others[place]

    def _both(self, job: transfer_jobs.CopyPayload | transfer_jobs.CopyManifest) -> tuple[Backend, str, Backend, str]:
        """Where a checkpoint is copied from and to: back ends and keys; one back end where both lie in one bucket."""
        target = self.backend.uri
        root = between.common(job.place, target)
        if root is None:
            return self._other(job.place), job.source, self.backend, job.key
        source, to = (
            f"{split_query(uri)[0][len(split_query(root)[0]) :].strip('/')}/{key}".lstrip("/")
            for uri, key in ((job.place, job.source), (target, job.key))
        )
        return self._other(root), source, self._other(root), to

    def _push_part(self, job: transfer_jobs.PushPart, moved: Callable[[int], None]) -> dict[str, str]:
        if job.witness != self._witness:
            key, text = job.witness
            try:
                same = text.encode() in self.backend.read(key)
            except ObjectNotFoundError:
                same = False
            if not same:
                raise TransferError(f"{self.backend.uri} is another place here than it is for the run")
            self._witness = job.witness
        self._parts.append(job.key)
        if len(self._parts) > _PARTS:
            self._index.forget(self._parts.popleft())  # of those nobody tells when they are deleted
        return remote_checkpoints.push_part(
            self.backend, Path(job.directory), job.key, job.names, index=self._index, progress=moved
        )

    def _do(self, job: AnyJob, moved: Callable[[int], None]) -> bytes:
        backend = self.backend
        match job:
            case transfer_jobs.Push():
                for source, prefix, names in job.groups:
                    if names:
                        backend.push(Path(source), prefix, names, progress=moved)
            case transfer_jobs.PushPayload():
                receipts = self._receipts.setdefault(job.key, {})
                remote_checkpoints.push_payload(
                    backend,
                    Path(job.directory),
                    job.key,
                    index=self._index,
                    sent=job.sent,
                    receipts=receipts,
                    progress=moved,
                )
                del self._receipts[job.key]
            case transfer_jobs.PushPart():
                return msgspec.json.encode(self._push_part(job, moved))
            case transfer_jobs.PushManifest():
                remote_checkpoints.push_manifest(backend, Path(job.directory), job.key)
            case transfer_jobs.CopyPayload():
                receipts = self._receipts.setdefault(job.key, {})
                origin, known, target, key = self._both(job)
                index = remote_checkpoints.ContentIndex()  # of `target`, whose keys may be longer
                content = remote_checkpoints.copy_payload(
                    origin, known, target, key, digest=job.digest, index=index, receipts=receipts, progress=moved
                )
                self._index.add(content.files, job.key)
                del self._receipts[job.key]
            case transfer_jobs.CopyManifest():
                remote_checkpoints.copy_manifest(*self._both(job), digest=job.digest)
            case transfer_jobs.CopyFiles():
                backend.copy(job.source, job.prefix, job.names, progress=moved)
            case transfer_jobs.RenameTree():
                backend.rename_tree(job.prefix, job.target)
            case transfer_jobs.DeleteCheckpoint():
                self._index.forget(job.key)
                self._receipts.pop(job.key, None)
                remote_checkpoints.delete(backend, job.key)
            case transfer_jobs.Delete():
                backend.delete(job.keys)
            case transfer_jobs.FetchCheckpoint():
                remote_checkpoints.fetch(backend, job.key, Path(job.target), digest=job.digest or None, progress=moved)
            case transfer_jobs.FetchFiles():
                backend.fetch(job.prefix, Path(job.target), job.names, progress=moved)
            case transfer_jobs.Put():
                backend.put(job.key, job.data, exclusive=job.exclusive)
            case transfer_jobs.Read():
                return backend.read(job.key)
            case transfer_jobs.Children():
                return msgspec.json.encode(list(backend.children(job.prefix)))
            case transfer_jobs.Learn():
                self._index.add(remote_checkpoints.read_manifest(backend, job.key).manifest.files, job.key)
            case transfer_jobs.Compare():
                found = between.differing(Path(job.source), backend, job.prefix, job.names, moved)
                return msgspec.json.encode(found)
            case transfer_jobs.FindLeftovers():
                return msgspec.json.encode(list(backend.leftovers(job.prefix)))
            case transfer_jobs.RemoveLeftovers():
                backend.remove_leftovers(job.leftovers)
            case transfer_jobs.ListKeys():
                return msgspec.json.encode({entry.key: entry.size for entry in backend.list(job.prefix)})
        return b""


def _number(name: str) -> int | None:
    stem = name.partition(".")[0]
    return int(stem) if stem.isdecimal() else None


def _is_higher(other: str, name: str) -> bool:
    """Whether a name is the other but for a higher number."""
    number, mine = _number(other), _number(name)
    return other.partition(".")[2] == name.partition(".")[2] and number is not None and number > (mine or 0)
