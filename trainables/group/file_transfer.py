"""Files of a group between its hosts: what a rank saved goes to its leader, and a newer checkpoint comes from there.

Each errand has a connection of its own, a rank at one end and a thread of the leader's process at the other. Pieces are
bounded, and what has arrived is hashed.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from dataclasses import dataclass
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path

import blake3

from trainables.errors import CheckpointNotFoundError, LimitError, PublishError
from trainables.net import handshake
from trainables.starting import start_thread
from trainables.store import file_tree, fs, manifest, staging, verify
from trainables.store.delete import pins

_log = logging.getLogger(__name__)

_PIECE = 1024 * 1024
_HANDSHAKE_S = 10.0
"""A stranger who connects and does not know the key is not waited for any longer."""


@dataclass(frozen=True, slots=True)
class SendFiles:
    """A rank saved something. Answer: where it will lie, or why not; after the files None, or why not."""

    label: str
    files: list[tuple[str, int]]
    """(name, size) of each, in the order in which they come."""
    directories: list[str]


@dataclass(frozen=True, slots=True)
class FetchSave:
    """A rank wants a checkpoint. Answer: what comes, as a `SendFiles`, or None: it is not there."""

    path: Path


@dataclass(frozen=True, slots=True)
class LeaderFiles:
    """The leader's files, as ranks on another host find them.

    Args:
        address: where the leader listens.
        key: which says who may speak.
        start: what the attempt starts from, over there.
        here: what that is here; None: nothing.
        directory: for what is fetched.
    """

    address: tuple[str, int]
    key: bytes
    start: Path | None
    here: Path | None
    directory: Path

    def send(self, staged: Path, label: str) -> Path:
        """Move what was staged here to the leader's host; where it lies there. Raises PublishError."""
        try:
            with staging.disk_errors(staged, remove=staged):
                moved = self._send(staged, label)
        except EOFError:
            raise PublishError("the leader of the group is gone") from None
        fs.remove_quietly(staged)
        return moved

    def _send(self, staged: Path, label: str) -> Path:
        going = _described(label, staging.settle(staged))
        with self._line() as line:
            line.send(going)
            answer: Path | OSError | None = line.recv()
            if isinstance(answer, OSError):
                raise answer
            assert answer is not None
            _give(line, staged, going)
            if isinstance(problem := line.recv(), OSError):
                raise problem
        return answer

    def fetch(self, path: Path) -> Path:
        """A checkpoint of the leader's host, here, whole. Raises CheckpointNotFoundError, CheckpointError."""
        if path == self.start and self.here is not None:
            return self.here
        target = self.directory / path.name
        if not fs.is_dir(target):
            fs.make_dirs(self.directory)
            beside = staging.new_directory(self.directory, path.name)
            try:
                self._fetch(path, beside)
                verify.check(beside)
                with contextlib.suppress(OSError):  # another rank of this host was faster
                    fs.rename(beside, target)
            finally:
                fs.remove_quietly(beside)
        return target

    def _fetch(self, path: Path, target: Path) -> None:
        try:
            with self._line() as line:
                line.send(FetchSave(path))
                coming: SendFiles | None = line.recv()
                if coming is None:
                    raise CheckpointNotFoundError(f"{path} is not on the leader's host any more")
                if isinstance(problem := _take(line, target, coming), OSError):
                    raise problem
        except EOFError:
            raise CheckpointNotFoundError(f"{path}: the leader of the group is gone") from None

    def _line(self) -> Connection:
        return reach(self.address, self.key)


class FileServer:
    """The leader's end: a thread for each errand.

    Args:
        listener: of the group; nobody else accepts from it any more.
        key: which says who may speak.
        directory: the trial's.
    """

    def __init__(self, listener: socket.socket, key: bytes, directory: Path) -> None:
        self._listener, self._key, self._directory = listener, key, directory
        start_thread(self._accept, name="trial-group-files")

    def close(self) -> None:
        """Take no more errands."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread, which a close alone would not

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = self._listener.accept()
                try:
                    start_thread(self._serve, name="trial-group-file", args=(accepted,))
                except LimitError as error:
                    _log.warning("files of another node are not taken just now: %s", error)
                    accepted.close()  # that rank hears it at once, and says what it lost

    def _serve(self, accepted: socket.socket) -> None:
        line = met(accepted, self._key)
        if line is None:
            return
        with contextlib.suppress(EOFError, OSError), line:  # the rank ended: its leader is told otherwise
            errand = line.recv()
            if isinstance(errand, SendFiles):
                self._receive(line, errand)
            elif isinstance(errand, FetchSave):
                self._give(line, errand.path)

    def _receive(self, line: Connection, errand: SendFiles) -> None:
        try:
            staged = staging.new_directory(self._directory, errand.label)
        except PublishError as error:
            line.send(error)
            return
        line.send(staged)
        arrived = False
        try:
            problem = _take(line, staged, errand)
            arrived = problem is None
            line.send(problem)
        finally:
            if not arrived:
                fs.remove_quietly(staged)

    def _give(self, line: Connection, path: Path) -> None:
        with pins.hold(path):
            if path.parent != self._directory or not manifest.is_published(path):
                line.send(None)
                return
            coming = _described(path.name, file_tree.scan(path, follow=False))
            line.send(coming)
            _give(line, path, coming)
            line.recv()  # held until it has arrived


def reach(address: tuple[str, int], key: bytes) -> Connection:
    """The line to a leader. Raises OSError, EOFError where there is none."""
    made = socket.create_connection(address)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # what is small is not to wait for what was small before
    line = Connection(made.detach())
    answer_challenge(line, key)
    deliver_challenge(line, key)
    return line


def met(accepted: socket.socket, key: bytes) -> Connection | None:
    """The line to who has just connected; None for a stranger."""
    return handshake.met(accepted, key, within_s=_HANDSHAKE_S)


def _described(label: str, found: file_tree.Tree) -> SendFiles:
    return SendFiles(label, [(file.name, file.size) for file in found.files], found.directories)


def _give(line: Connection, directory: Path, going: SendFiles) -> None:
    for name, size in going.files:
        hasher, left = blake3.blake3(), size
        with open(directory / name, "rb") as file:
            while left:
                data = file.read(min(_PIECE, left))
                if not data:
                    raise PublishError(f"{directory / name} was shortened while it was sent")
                hasher.update(data)
                line.send_bytes(data)
                left -= len(data)
        line.send_bytes(hasher.digest())


def _take(line: Connection, directory: Path, coming: SendFiles) -> OSError | None:
    """Receive files into a directory; why it did not take them. What was said to come is heard all the same."""
    problem: OSError | None = None
    try:
        with staging.disk_errors(directory):
            for name in coming.directories:
                fs.mkdir(_inside(directory, name))
    except OSError as error:
        problem = error
    for name, size in coming.files:
        problem = _take_file(line, directory, name, size, problem)
    return problem


def _take_file(line: Connection, directory: Path, name: str, size: int, problem: OSError | None) -> OSError | None:
    fd, hasher, left = -1, blake3.blake3(), size
    try:
        while problem is None and (left or fd < 0):
            try:
                with staging.disk_errors(directory):
                    if fd < 0:
                        fd = fs.create(_inside(directory, name))
                    if left:
                        data = line.recv_bytes(_PIECE)
                        left -= len(data)
                        hasher.update(data)
                        fs.write(fd, data)
            except OSError as error:
                problem = error
        while left:
            left -= len(line.recv_bytes(_PIECE))
        if line.recv_bytes(64) != hasher.digest() and problem is None:
            problem = PublishError(f"{name} did not arrive as it was sent")
    finally:
        if fd >= 0:
            fs.close(fd)
    return problem


def _inside(directory: Path, name: str) -> Path:
    if not manifest.stays_inside(name):
        raise PublishError(f"{name!r} leads out of {directory}")
    return directory / name
