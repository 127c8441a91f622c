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

from trainables.store import fs
from tuner.error import OrderError
from tuner.experiment.hostile import UNREADABLE
from tuner.experiment.paths import ExperimentPaths
from tuner.orders.order import is_id

log = logging.getLogger(__name__)

MAX_BYTES = 1024 * 1024
AT_ONCE = 100
"""Orders that are taken at one look, which there is once a second."""
ANSWERS_KEPT_S = 86_400.0
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
        """As open as the experiment itself is to its group, and to nobody else."""
        if fs.exists(self.directory):
            return
        shared = os.stat(self._root).st_mode & stat.S_IWGRP
        with contextlib.suppress(FileExistsError):
            fs.mkdir(self.directory, 0o700)
            if shared:
                fs.chmod(self.directory, 0o2770)

    def answer(self, order_id: str) -> OrderAnswer | None:
        """What was said to an order; None: nothing, or it was more than a day ago."""
        data = _read(self.directory / f"{order_id}{_ANSWER}")
        if isinstance(data, bytes):
            with contextlib.suppress(*UNREADABLE):
                return msgspec.json.decode(data, type=OrderAnswer)
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
        for path in self._files():
            if len(letters) == AT_ONCE:
                break
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
        try:
            status = os.lstat(self.directory)
        except OSError:
            return []  # nobody has ever said anything
        if not stat.S_ISDIR(status.st_mode) or status.st_mode & stat.S_IWOTH:
            if not self._spoken:
                self._spoken = True
                log.warning("%s is open to everybody, or no directory: orders in it are not read", self.directory)
            return []
        found = []
        with contextlib.suppress(OSError):  # taken away meanwhile; at the next look it is here, or gone
            for entry in os.scandir(self.directory):
                if entry.name.startswith(".") or entry.name.endswith(_ANSWER) or entry.name == _SET_ASIDE:
                    continue
                found.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry.name))
        return [self.directory / name for _, name in sorted(found)]

    def _set_aside(self, path: Path, why: str) -> None:
        aside = self.directory / _SET_ASIDE
        with contextlib.suppress(OSError):
            fs.make_dirs(aside)
            fs.rename(path, aside / f"{uuid.uuid4().hex[:8]}-{path.name[-200:]}")
            log.warning("%s is no order: %s; it was set aside", path, why)

    def done_with(self, order_id: str) -> None:
        """The order is kept elsewhere."""
        fs.remove_quietly(self.directory / f"{order_id}{_SUFFIX}")

    def reply(self, answer: OrderAnswer) -> None:
        """Write an answer in place of the one before. Raises OSError."""
        fs.replace_file(self.directory / f"{answer.id}{_ANSWER}", msgspec.json.encode(answer))

    def is_open(self) -> bool:
        """Whether somebody has ever said something."""
        return fs.is_dir(self.directory)

    def forget_answers(self, now: float) -> None:
        """Remove answers that are older than a day.

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
                if name.endswith(_ANSWER):
                    yield self.directory / name


def _read(path: Path) -> bytes | str | None:
    """What a plain file holds; or why it is none; None: it is not there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
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
        return f"it cannot be read ({error.strerror})"
    finally:
        os.close(fd)
