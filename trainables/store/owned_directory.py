"""Directories that go with whoever made them: what a killed owner left is removed by the next to make one there.

The owner of each holds a lock on it. It ends with the process, however that ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import tempfile
from pathlib import Path

from trainables.store import fs

AGENT_PREFIX = "tuner-agent-"
SSH_PREFIX = "tuner-ssh-"


class OwnedDirectory:
    """A directory that is this process's own until `remove`."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    def remove(self) -> None:
        """Remove it with all that is in it. Doing it twice is no error, and one that was renamed stays."""
        fs.remove_quietly(self.path)
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def make(prefix: str, place: Path | None = None, *, mode: int = 0o700) -> OwnedDirectory:
    """A new one; by default in the directory for temporary files, and such that only this user may look into it.

    Where the filesystem has no locks nobody takes it for a dead one's, and it stays when its owner is killed.
    """
    place = Path(tempfile.gettempdir()) if place is None else place
    sweep(place, prefix)
    while True:
        path = place / f"{prefix}{secrets.token_hex(4)}"
        fs.make_dirs(place)
        try:
            fs.mkdir(path, mode)
        except (FileExistsError, FileNotFoundError):
            continue  # it, or what it is to lie in, came or went just now
        if (owned := own(path, fresh=True)) is not None:
            return owned  # else somebody swept in between


def sweep(place: Path, prefix: str = "") -> None:
    """Remove the directories of that prefix which belong to this user and to no process any more."""
    try:
        names = [name for name in fs.listdir(place) if name.startswith(prefix)]
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        with contextlib.suppress(OSError):  # nobody can tell whose it is
            if (owned := own(place / name)) is not None:
                owned.remove()


def own(path: Path, *, fresh: bool = False) -> OwnedDirectory | None:
    """Take a directory of this user that no process owns; None: it is no such one.

    `fresh`: this process has just made it, and need not be able to lock it.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES):
            return None  # gone, or not ours
        raise
    with contextlib.suppress(OSError):  # it has an owner, or is gone, or nothing can be locked there
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if isinstance(error, BlockingIOError) or not fresh:
                raise
        opened, there = os.fstat(fd), os.lstat(path)
        if opened.st_uid == os.geteuid() and (opened.st_dev, opened.st_ino) == (there.st_dev, there.st_ino):
            return OwnedDirectory(path, fd)
    os.close(fd)
    return None
