"""Temporary directories that go with whoever made them: what a killed owner left is removed by the next to make one.

The owner of each holds a lock on it. It ends with the process, however that ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

AGENT_PREFIX = "tuner-agent-"
SSH_PREFIX = "tuner-ssh-"


class OwnedDirectory:
    """A directory that is this process's own until `remove`."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    def remove(self) -> None:
        """Remove it with all that is in it. Doing it twice is no error."""
        shutil.rmtree(self.path, ignore_errors=True)
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def make(prefix: str) -> OwnedDirectory:
    """A new one in the directory for temporary files, which only this user may look into."""
    place = Path(tempfile.gettempdir())
    sweep(place, prefix)
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        if (owned := own(path)) is not None:
            return owned  # else somebody swept in between


def sweep(place: Path, prefix: str = "") -> None:
    """Remove the directories of that prefix which belong to this user and to no process any more."""
    try:
        names = [name for name in os.listdir(place) if name.startswith(prefix)]
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        if (owned := own(place / name)) is not None:
            owned.remove()


def own(path: Path) -> OwnedDirectory | None:
    """Take a directory of this user that no process owns; None: it is no such one."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES):
            return None  # gone, or not ours
        raise
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        opened, there = os.fstat(fd), os.lstat(path)
        if opened.st_uid == os.geteuid() and (opened.st_dev, opened.st_ino) == (there.st_dev, there.st_ino):
            return OwnedDirectory(path, fd)
    except OSError:
        pass  # it has an owner, or is gone, or nothing can be locked there
    os.close(fd)
    return None
