"""Files of a group between its hosts: what a rank saved goes to its leader, and a newer checkpoint comes from there.

Each errand has a connection of its own, a rank at one end and a thread of the leader's process at the other. Pieces are
bounded, and what has arrived is hashed.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from trainables.errors import CheckpointNotFoundError, LimitError, PublishError
from trainables.group.rank_messages import GroupMessage
from trainables.net import handshake, pieces
from trainables.starting import start_thread
from trainables.store import file_tree, fs, manifest, staging, verify
from trainables.store.delete import pins

_log = logging.getLogger(__name__)

_PIECE = 1024 * 1024
HANDSHAKE_S = 10.0
"""A stranger who connects and does not know the key is not waited for any longer."""


class SendFiles(GroupMessage, frozen=True):
    """A rank saved something. Answer: where it will lie, or why not; after the files None, or why not."""

    label: str
    files: list[tuple[str, int]]
    """(name, size) of each, in the order in which they come."""
    directories: list[str]


class FetchSave(GroupMessage, frozen=True):
    """A rank wants a checkpoint. Answer: what comes, as a `SendFiles`, or None: it is not there."""

    path: Path


@dataclass(frozen=True, slots=True)
class LeaderFiles:
    """The leader's files, as ranks on another host find them.

    Args:
        address: where the leader listens.
        key: which says who may speak.
        start: what the attempt starts from, as its path there.
        local_start: what that is here; None: nothing.
        directory: for what is fetched.
    """

    address: tuple[str, int]
    key: bytes
    start: Path | None
    local_start: Path | None
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
            pieces.send(line, staged, going.files, _PIECE)
            if isinstance(problem := line.recv(), OSError):
                raise problem
        return answer

    def fetch(self, path: Path) -> Path:
        """A checkpoint of the leader's host, here, whole. Raises CheckpointNotFoundError, CheckpointError."""
        if path == self.start and self.local_start is not None:
            return self.local_start
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
        return Connection(handshake.connect(self.address, self.key).detach())


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
        if (sock := handshake.admit(accepted, self._key, knock_s=HANDSHAKE_S, answer_s=HANDSHAKE_S)) is None:
            return
        with contextlib.suppress(EOFError, OSError), Connection(sock.detach()) as line:
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
            pieces.send(line, path, coming.files, _PIECE)
            line.recv()  # held until it has arrived


def _described(label: str, found: file_tree.Tree) -> SendFiles:
    return SendFiles(label, [(file.name, file.size) for file in found.files], found.directories)


def _take(connection: Connection, directory: Path, coming: SendFiles) -> OSError | None:
    """Receive files into a directory; why it did not take them. What was said to come is heard all the same."""
    problem: OSError | None = None

    def attempt(work: Callable[[], None]) -> None:
        nonlocal problem
        if problem is None:
            try:
                with staging.disk_errors(directory):
                    work()
            except OSError as error:
                problem = error

    def take(name: str, offset: int, data: memoryview) -> None:
        attempt(lambda: pieces.write(_inside(directory, name), offset, data, fresh=True))

    for name in coming.directories:
        attempt(partial(_make_inside, directory, name))
    if not pieces.receive(connection, coming.files, _PIECE, take) and problem is None:
        problem = PublishError(f"{coming.label} did not arrive as it was sent")
    return problem


def _make_inside(directory: Path, name: str) -> None:
    fs.mkdir(_inside(directory, name))


def _inside(directory: Path, name: str) -> Path:
    if not manifest.stays_inside(name):
        raise PublishError(f"{name!r} leads out of {directory}")
    return directory / name
