"""The directory in which orders are given and answered, as both sides see it.

An order is a file ID.json, renamed into place; its answer is ID.answer.json. Who may write there may give orders:
the owner of the experiment, and its group where the experiment's directory may be written by the group.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import uuid
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import msgspec

from trainables.decoding import decode
from trainables.store import fs
from tuner.clock import SystemClock
from tuner.error import OrderError
from tuner.experiment.hostile import UNREADABLE
from tuner.experiment.paths import ExperimentPaths
from tuner.orders.order import is_id

log = logging.getLogger(__name__)

MAX_BYTES = 1024 * 1024
AT_ONCE = 100
"""Orders that are taken at one look, which there is once a second."""
ANSWERS_KEPT_S = 86_400.0
_LATER = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE, errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT)
"""What says nothing about a file: at the next look it may be read."""
_SUFFIX, _ANSWER = ".json", ".answer.json"
_SET_ASIDE = "set-aside"


class OrderState(Enum):
    """How far an order is."""

    WAITING = "waiting"
    """No driver has taken it up."""
    TAKEN = "taken"
    """It is kept, also over a resume, and its effect is not there yet."""
    DONE = "done"
    """Its effect is there."""
    REFUSED = "refused"
    """It has no effect, and never will have."""


class OrderAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a driver says to an order."""

    id: str
    state: OrderState
    why: str = ""


class Letter(NamedTuple):
    """An order as it was found."""

    id: str
    body: bytes


class Mailbox:
    """The orders of one experiment.

    Args:
        root: the experiment's directory.
    """

    def __init__(self, root: Path) -> None:
        self.directory = ExperimentPaths(root).orders
        self._root = root
        self._spoken = False
        self._stays: set[str] = set()
        """Rubbish that cannot be set aside."""

    # --- whoever orders -------------------------------------------------------------------------------------

    def put(self, order_id: str, body: bytes) -> None:
        """Give an order. One that has this id already stands, and what was said to it.

        Raises OrderError where nobody may write here.
        """
        if len(body) > MAX_BYTES:
            raise OrderError(f"an order has at most {MAX_BYTES:,} bytes, and this one {len(body):,}")
        try:
            self._make()
            if self.answer(order_id) is not None:
                return
            staged = self.directory / f".{order_id}.{uuid.uuid4().hex}"
            try:
                fs.write_file(staged, body, fsync=True, exclusive=True)
                self._share(staged)
                _date(staged)
                self._place(staged, self.directory / f"{order_id}{_SUFFIX}")
            finally:
                fs.remove_quietly(staged)
        except OSError as error:
            raise OrderError(f"no order can be given at {self.directory}: {error.strerror}") from error

    @staticmethod
    def _place(staged: Path, target: Path) -> None:
        """Like a rename that replaces nothing; a file system without hard links gets one that does."""
        try:
            fs.link(staged, target)
        except FileExistsError:
            return  # somebody else was first with this id
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                raise
            fs.rename(staged, target)
        fs.fsync_dir(target.parent)

    def _make(self) -> None:
        """As open as the experiment itself is to its group, and to nobody else; it appears with its rights."""
        if fs.exists(self.directory):
            return
        experiment = os.stat(self._root)
        staged = self._root / f".{self.directory.name}.{uuid.uuid4().hex}"
        fs.mkdir(staged, 0o700)
        try:
            if os.geteuid() == 0:
                os.chown(staged, experiment.st_uid, experiment.st_gid)
            elif experiment.st_mode & stat.S_IWGRP:
                os.chown(staged, -1, experiment.st_gid)
            if experiment.st_mode & stat.S_IWGRP:
                fs.chmod(staged, 0o2770)
            fs.rename(staged, self.directory)
        except OSError as error:
            fs.remove_quietly(staged)
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # else somebody was faster
                raise

    def _share(self, path: Path) -> None:
        """A file that the owner of the directory can read, and its group where that may order: whatever the umask."""
        directory = os.lstat(self.directory)
        if os.geteuid() == 0 and directory.st_uid != 0:
            os.chown(path, directory.st_uid, directory.st_gid)
        if directory.st_mode & stat.S_IWGRP:
            fs.chmod(path, 0o660)

    def answer(self, order_id: str) -> OrderAnswer | None:
        """What was said to an order; None: nothing, or it was more than a day ago."""
        data = _read(self.directory / f"{order_id}{_ANSWER}")
        if isinstance(data, bytes):
            with contextlib.suppress(*UNREADABLE):
                return decode(data, OrderAnswer)
        return None

    def is_waiting(self, order_id: str) -> bool:
        """Whether it lies there, and nobody has taken it up."""
        return fs.exists(self.directory / f"{order_id}{_SUFFIX}")

    def withdraw(self, order_id: str) -> None:
        """Take an order back that nobody has taken up."""
        fs.remove_quietly(self.directory / f"{order_id}{_SUFFIX}")

    # --- the driver -----------------------------------------------------------------------------------------

    def take(self) -> list[Letter]:
        """The orders that lie there, the oldest first, at most `AT_ONCE`; they stay until they are `done_with`."""
        letters: list[Letter] = []
        for path in [path for path in self._files() if path.name not in self._stays][:AT_ONCE]:
            body = _read(path) if is_id(path.name.removesuffix(_SUFFIX)) else "its name is not that of an order"
            if isinstance(body, bytes):
                letters.append(Letter(path.name.removesuffix(_SUFFIX), body))
            elif body is not None:
                self._set_aside(path, body)
        return letters

    def waiting(self) -> list[Letter]:
        """What nobody has taken up, the oldest first; for those who only look."""
        files = (path for path in self._files() if is_id(path.name.removesuffix(_SUFFIX)))
        read = ((path.name.removesuffix(_SUFFIX), _read(path)) for path in files)
        return [Letter(name, body) for name, body in read if isinstance(body, bytes)]

    def _files(self) -> list[Path]:
        if not fs.exists(self.directory):
            return []  # nobody has ever said anything
        if not self.is_open():
            self._say_once("%s is open to everybody, or no directory: orders in it are not read", self.directory)
            return []
        found = []
        try:
            for entry in os.scandir(self.directory):
                if entry.name.startswith(".") or entry.name.endswith(_ANSWER) or entry.name == _SET_ASIDE:
                    continue
                with contextlib.suppress(FileNotFoundError):  # taken back meanwhile
                    found.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry.name))
        except OSError as error:  # a transient one, or it is somebody else's
            if error.errno in (errno.EACCES, errno.EPERM):
                self._say_once("orders in %s cannot be read: %s", self.directory, error.strerror)
        return [self.directory / name for _, name in sorted(found)]

    def _say_once(self, text: str, *arguments: object) -> None:
        if not self._spoken:
            self._spoken = True
            log.warning(text, *arguments)

    def _set_aside(self, path: Path, why: str) -> None:
        aside, shown = self.directory / _SET_ASIDE, repr(str(path))[1:-1]
        try:
            fs.make_dirs(aside)
            fs.rename(path, aside / f"{uuid.uuid4().hex[:8]}-{os.fsdecode(os.fsencode(path.name)[-200:])}")
            log.warning("%s is no order: %s; it was set aside", shown, why)
        except OSError as error:
            self._stays.add(path.name)
            log.warning("%s is no order: %s; it cannot be set aside: %s", shown, why, error.strerror)

    def done_with(self, order_id: str) -> None:
        """The order is kept elsewhere."""
        fs.remove_quietly(self.directory / f"{order_id}{_SUFFIX}")

    def reply(self, answer: OrderAnswer) -> None:
        """Write an answer in place of the one before. Raises OSError."""
        staged = self.directory / f".{answer.id}.{uuid.uuid4().hex}"  # a name that nobody can have made a link of
        try:
            fs.write_file(staged, msgspec.json.encode(answer), fsync=True, exclusive=True)
            self._share(staged)
            fs.rename(staged, self.directory / f"{answer.id}{_ANSWER}")
        except OSError:
            fs.remove_quietly(staged)
            raise
        fs.fsync_dir(self.directory)

    def is_open(self) -> bool:
        """Whether somebody has ever said something, in a directory that is not everybody's."""
        try:
            mode = os.lstat(self.directory).st_mode
        except OSError:
            return False
        return stat.S_ISDIR(mode) and not mode & stat.S_IWOTH

    def forget_answers(self, now: float) -> None:
        """Remove answers that are older than a day, and what killed processes had begun to write.

        Args:
            now: seconds since the epoch.
        """
        for path in self._answers():
            with contextlib.suppress(OSError):
                if now - os.lstat(path).st_mtime > ANSWERS_KEPT_S:
                    fs.unlink(path)

    def _answers(self) -> Iterator[Path]:
        with contextlib.suppress(OSError):
            for name in fs.listdir(self.directory):
                if name.endswith(_ANSWER) or name.startswith("."):
                    yield self.directory / name


def _read(path: Path) -> bytes | str | None:
    """What a plain file holds; or why it is none; None: it is not there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in _LATER:
            return None
        return "it is a link" if error.errno == errno.ELOOP else f"it cannot be opened ({error.strerror})"
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return "it is no regular file"
        if status.st_size > MAX_BYTES:
            return f"it has {status.st_size:,} bytes, more than {MAX_BYTES:,}"
        with open(fd, "rb", closefd=False) as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        return None if error.errno in _LATER else f"it cannot be read ({error.strerror})"
    finally:
        os.close(fd)


_newest = 0


def _date(path: Path) -> None:
    """Of two orders of one process the later one is newer: a file system counts in steps that both fit into."""
    global _newest
    _newest = max(int(SystemClock().time() * 1e9), _newest + 1_000)
    os.utime(path, ns=(_newest, _newest))
