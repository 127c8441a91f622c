"""The agent of a replica: a process that moves bytes, so that neither driver nor trial does.

The driver (`tuner.syncer.uploader`) starts one per replica, sends it jobs over a socket and gets one answer for each,
with word of bytes that moved in between. What hangs in here is killed with the process and loses nothing: every job may
be done again. `Worker` alone does the jobs; the inline executor and the tests call it without a process.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Union

import cloudpickle
import msgspec

from trainables.errors import AccessRefusedError, CheckpointError, LimitError, ObjectNotFoundError, TransferError
from trainables.store import fs
from trainables.store.occupied import occupy, remove_left
from trainables.threads import Threads
from trainables.transfer import between, remote_checkpoints
from trainables.transfer.backend import Backend, Leftover
from trainables.transfer.open import open_backend
from trainables.wire import Frames, frame

THREADS = 6
"""So many jobs at once; each of them may move several files at a time."""
SMALL_THREADS = 2
"""Beside them, for small files: an owner's sign of life must not wait until something large has moved."""
PROGRESS_BYTES = 1024 * 1024
"""Word of progress is sent each time that much has moved."""
LOOK_S = 10.0
"""At most that often it is looked at all that lies beside the guard: a listing costs more than a look for one key."""
_TEMPORARY = "tuner-copying-"
_PARTS = 2
"""Of so many of the last checkpoints to which a part was brought, what has not changed is copied over there."""


class TransferJob(msgspec.Struct, frozen=True, kw_only=True, tag_field="job"):
    """Base of all jobs."""

    id: int = 0
    guard: str = ""
    """A key: if there is something of that name the replica has another owner, and nothing is done.

    Where the name is a number, as in `000002.json`, a higher one beside it says so too; it may be found
    `LOOK_S` seconds late.
    """


class Push(TransferJob, frozen=True, tag="push"):
    """Copy small files: group after group, in that order."""

    groups: list[tuple[str, str, list[str]]]
    """(source directory, prefix, names)."""


class PushPayload(TransferJob, frozen=True, tag="payload"):
    """Copy a published checkpoint without its manifest: nobody sees it yet."""

    directory: str
    key: str
    sent: dict[str, str] = {}
    """Name -> BLAKE3 of what those who saved it have put there themselves (`PushPart`): it is not sent again."""


class PushPart(TransferJob, frozen=True, tag="part"):
    """Copy files of a checkpoint before it is published; the `sent` of `PushPayload` is the answer, as JSON."""

    directory: str
    key: str
    names: list[str]
    witness: tuple[str, str]
    """(key, text in it): where there is no such file this is not the run's place."""


class PushManifest(TransferJob, frozen=True, tag="manifest"):
    """Copy its manifest: from now on it is complete there."""

    directory: str
    key: str


class CopyPayload(TransferJob, frozen=True, tag="copy_payload"):
    """Copy a checkpoint from this or another place without its manifest: nobody sees it yet."""

    place: str
    """URI of that place, opened with the same keys and credentials as this one."""
    source: str
    """Its key there."""
    key: str
    digest: str = ""
    """BLAKE3 of its manifest."""


class CopyManifest(TransferJob, frozen=True, tag="copy_manifest"):
    """Copy its manifest; the rest as in `CopyPayload`."""

    place: str
    source: str
    key: str
    digest: str = ""


class DeleteCheckpoint(TransferJob, frozen=True, tag="delete_checkpoint"):
    """Delete a checkpoint, its manifest first. Nothing there is no error."""

    key: str


class Delete(TransferJob, frozen=True, tag="delete"):
    """Delete files, in that order."""

    keys: list[str]


class FetchCheckpoint(TransferJob, frozen=True, tag="fetch_checkpoint"):
    """Bring a checkpoint to a local directory, whole and hashed or not at all."""

    key: str
    target: str
    digest: str = ""


class FetchFiles(TransferJob, frozen=True, tag="fetch"):
    """Bring files; without names all under the prefix."""

    prefix: str
    target: str
    names: list[str] | None = None


class Put(TransferJob, frozen=True, tag="put"):
    """Write a small file."""

    key: str
    data: bytes
    exclusive: bool = False


class Read(TransferJob, frozen=True, tag="read"):
    """The content of a small file is the answer."""

    key: str


class ListKeys(TransferJob, frozen=True, tag="list"):
    """Every key under the prefix, with its size, is the answer as JSON."""

    prefix: str


class Children(TransferJob, frozen=True, tag="children"):
    """The names directly under the prefix, those of directories with a slash, are the answer as a JSON list."""

    prefix: str


class Compare(TransferJob, frozen=True, tag="compare"):
    """Which of these files are not the same over there as here is the answer as a JSON list."""

    source: str
    prefix: str
    names: list[str]


class FindLeftovers(TransferJob, frozen=True, tag="find_leftovers"):
    """What killed uploads left half done under the prefix (`base.Leftover`) is the answer, as JSON."""

    prefix: str


class RemoveLeftovers(TransferJob, frozen=True, tag="remove_leftovers"):
    """Remove these."""

    leftovers: list[Leftover]


class Learn(TransferJob, frozen=True, tag="learn"):
    """What that checkpoint over there holds need not be sent again: it may be copied from there."""

    key: str


AnyJob = Union[
    Push, PushPayload, PushPart, PushManifest, CopyPayload, CopyManifest, DeleteCheckpoint, Delete, FetchCheckpoint,
    FetchFiles, Put, Read, ListKeys, Children, Compare, FindLeftovers, RemoveLeftovers, Learn
]  # fmt: skip


class PlaceOpened(msgspec.Struct, frozen=True, tag="opened", tag_field="answer"):
    """The place was looked at and takes what is written to it."""

    can: dict[str, bool]
    """The back end's `Can`."""
    uri: str
    """The place as messages and facts name it."""


class Done(msgspec.Struct, frozen=True, tag="done", tag_field="answer"):
    id: int
    data: bytes = b""


class Failed(msgspec.Struct, frozen=True, tag="failed", tag_field="answer"):
    """`id` 0: the place could not be opened."""

    id: int
    type: str
    message: str
    transient: bool = False


class Moved(msgspec.Struct, frozen=True, tag="moved", tag_field="answer"):
    """So many bytes of a job moved since the last word of it."""

    id: int
    bytes: int


class Begun(msgspec.Struct, frozen=True, tag="begun", tag_field="answer"):
    """A job does not wait for its turn any more."""

    id: int


Answer = Union[PlaceOpened, Done, Failed, Moved, Begun]

TAKEN = "Taken"
"""The type of a `Failed` that says: the guard is there."""

decode_answer = msgspec.json.Decoder(Answer).decode
decode_job = msgspec.json.Decoder(AnyJob).decode


class Worker:
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

    def do(self, job: AnyJob, moved: Callable[[int], None]) -> Done | Failed:
        """Do one job, whatever comes of it."""
        try:
            if job.guard and self.backend.can.list and (owner := self._owner(job.guard)):
                return Failed(job.id, TAKEN, f"{self.backend.url(owner)} was written by another driver")
            return Done(job.id, self._do(job, moved))
        except AccessRefusedError as error:
            self.backend.renew()  # expired credentials are read anew, and the next try has them
            return Failed(job.id, type(error).__name__, str(error), error.transient)
        except TransferError as error:
            return Failed(job.id, type(error).__name__, str(error), error.transient)
        except LimitError as error:
            return Failed(job.id, type(error).__name__, str(error), transient=True)
        except (CheckpointError, OSError, ValueError) as error:
            return Failed(job.id, type(error).__name__, str(error))
        except Exception as error:  # a user's function or Syncer may raise anything; the agent lives on
            return Failed(job.id, type(error).__name__, f"{type(error).__name__}: {error}")

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

    def _both(self, job: CopyPayload | CopyManifest) -> tuple[Backend, str, Backend, str]:
        """Where a checkpoint is copied from and to: back ends and keys; one back end where both lie in one bucket."""
        target = self.backend.uri
        root = between.common(job.place, target)
        if root is None:
            return self._other(job.place), job.source, self.backend, job.key
        source, to = (
            f"{uri[len(root) :].strip('/')}/{key}".lstrip("/")
            for uri, key in ((job.place, job.source), (target, job.key))
        )
        return self._other(root), source, self._other(root), to

    def _push_part(self, job: PushPart, moved: Callable[[int], None]) -> dict[str, str]:
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
            case Push():
                for source, prefix, names in job.groups:
                    if names:
                        backend.push(Path(source), prefix, names, progress=moved)
            case PushPayload():
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
            case PushPart():
                return msgspec.json.encode(self._push_part(job, moved))
            case PushManifest():
                remote_checkpoints.push_manifest(backend, Path(job.directory), job.key)
            case CopyPayload():
                receipts = self._receipts.setdefault(job.key, {})
                origin, known, target, key = self._both(job)
                index = remote_checkpoints.ContentIndex()  # of `target`, whose keys may be longer
                content = remote_checkpoints.copy_payload(
                    origin, known, target, key, digest=job.digest, index=index, receipts=receipts, progress=moved
                )
                self._index.add(content.files, job.key)
                del self._receipts[job.key]
            case CopyManifest():
                remote_checkpoints.copy_manifest(*self._both(job), digest=job.digest)
            case DeleteCheckpoint():
                self._index.forget(job.key)
                self._receipts.pop(job.key, None)
                remote_checkpoints.delete(backend, job.key)
            case Delete():
                backend.delete(job.keys)
            case FetchCheckpoint():
                remote_checkpoints.fetch(backend, job.key, Path(job.target), digest=job.digest or None, progress=moved)
            case FetchFiles():
                backend.fetch(job.prefix, Path(job.target), job.names, progress=moved)
            case Put():
                backend.put(job.key, job.data, exclusive=job.exclusive)
            case Read():
                return backend.read(job.key)
            case Children():
                return msgspec.json.encode(list(backend.children(job.prefix)))
            case Learn():
                self._index.add(remote_checkpoints.read_manifest(backend, job.key).manifest.files, job.key)
            case Compare():
                found = between.differing(Path(job.source), backend, job.prefix, job.names, moved)
                return msgspec.json.encode(found)
            case FindLeftovers():
                return msgspec.json.encode(list(backend.leftovers(job.prefix)))
            case RemoveLeftovers():
                backend.remove_leftovers(job.leftovers)
            case ListKeys():
                return msgspec.json.encode({entry.key: entry.size for entry in backend.list(job.prefix)})
        return b""


def _number(name: str) -> int | None:
    stem = name.partition(".")[0]
    return int(stem) if stem.isdecimal() else None


def _is_higher(other: str, name: str) -> bool:
    """Whether a name is the other but for a higher number."""
    number, mine = _number(other), _number(name)
    return other.partition(".")[2] == name.partition(".")[2] and number is not None and number > (mine or 0)


class Spoken:
    """The agent's end of the line: answers from several threads, whole."""

    def __init__(self, line: socket.socket) -> None:
        self._line, self._lock = line, threading.Lock()

    def say(self, answer: Answer) -> None:
        with self._lock:
            self._line.sendall(frame(answer))


class _Progress:
    """Adds up what moved of one job, and says so now and then."""

    def __init__(self, id: int, spoken: Spoken) -> None:
        self._id, self._spoken, self._sum, self._lock = id, spoken, 0, threading.Lock()

    def __call__(self, moved: int) -> None:
        with self._lock:
            self._sum += moved
            if self._sum < PROGRESS_BYTES:
                return
            told, self._sum = self._sum, 0
        self._spoken.say(Moved(self._id, told))


def serve(line: socket.socket, at_end: Callable[[], None] = lambda: None) -> None:
    """Read what place is meant, open it, then do jobs until the other end closes; `at_end` is called before the end."""
    frames, spoken = Frames(), Spoken(line)
    waiting: list[bytes] = []

    def receive() -> bytes | None:
        while not waiting:
            try:
                data = line.recv(65536)
            except ConnectionResetError:  # killed, with answers of ours that it had not read
                return None
            if not data:
                return None
            waiting.extend(frames.feed(data))
        return waiting.pop(0)

    opening = receive()
    if opening is None:
        return
    greeting: PlaceOpened | Failed
    try:
        worker = _open(opening)
        greeting = PlaceOpened(dataclasses.asdict(worker.backend.can), worker.backend.uri)
    except Exception as error:  # said to the driver, which raises it
        greeting = Failed(0, type(error).__name__, str(error))
    try:
        spoken.say(greeting)
    except OSError:
        return  # the driver was killed meanwhile
    if isinstance(greeting, Failed):
        return
    with (
        Threads(THREADS, thread_name_prefix="transfer") as pool,
        Threads(SMALL_THREADS, thread_name_prefix="small") as small,
    ):
        while (body := receive()) is not None:
            job = decode_job(body)
            (small if isinstance(job, (Put, Read)) else pool).submit(_answer, worker, job, spoken)
        at_end()
        os._exit(0)  # the driver is gone: what is under way may hang, and may be done again


def _answer(worker: Worker, job: AnyJob, spoken: Spoken) -> None:
    spoken.say(Begun(job.id))
    spoken.say(worker.do(job, _Progress(job.id, spoken)))


class OpenPlace(msgspec.Struct, frozen=True):
    """What the agent is told first."""

    pickled: bytes
    """cloudpickle of the keyword arguments of `open_backend`."""
    path: list[str]
    """The driver's `sys.path`: a user's function may come from there."""
    check: bool = True
    """Look whether the place can be used before anything else."""


def _open(body: bytes) -> Worker:
    place = msgspec.json.decode(body, type=OpenPlace)
    sys.path.extend(entry for entry in place.path if entry not in sys.path)
    arguments = cloudpickle.loads(place.pickled)
    backend = open_backend(**arguments)
    if place.check:
        backend.check()
    gc.collect()  # opening leaves more behind than the agent needs for its work
    return Worker(backend, arguments)


def main(arguments: Sequence[str]) -> None:
    """`python -m trainables.transfer.agent FD`: serve the socket of that number until its other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's: it may want to finish
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with _temporary_directory() as remove:
        serve(socket.socket(fileno=int(arguments[0])), at_end=remove)


@contextmanager
def _temporary_directory() -> Iterator[Callable[[], None]]:
    """What is made with `tempfile` meanwhile lies in a directory of its own; yields what removes it before the end.

    Killed, it leaves that to the next one of this user on this host.
    """
    parent = Path(tempfile.gettempdir())
    try:
        remove_left(parent, _TEMPORARY)
        directory, fd = occupy(parent, _TEMPORARY, mode=0o700)
    except OSError:
        yield lambda: None  # whoever needs it says what is wrong with it
        return
    tempfile.tempdir = str(directory)
    try:
        yield lambda: fs.remove_quietly(directory)
    finally:
        fs.remove_quietly(directory)
        os.close(fd)


if __name__ == "__main__":
    main(sys.argv[1:])
