"""Temporary directories under a lease (a file lock), so that orphans of killed processes can be removed."""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path

from trainables.store import fs


def occupy(parent: Path, prefix: str, *, mode: int = 0o777) -> tuple[Path, int]:
    """Make a directory of that prefix; it counts as in use until the descriptor that is returned is closed.

    Where the filesystem has no locks it is never taken for a dead one's.
    """
    while True:
        directory = parent / f"{prefix}{secrets.token_hex(4)}"
        fs.make_dirs(parent)
        try:
            fs.mkdir(directory, mode)
        except (FileExistsError, FileNotFoundError):
            continue  # it, or what it is to lie in, came or went just now
        try:
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # whoever looked at it before that may have taken it for a dead one's
            os.close(fd)
            continue
        except OSError:
            pass
        if fs.exists(directory):
            return directory, fd
        os.close(fd)


def remove_left(parent: Path, prefix: str) -> None:
    """Remove those of this user that nobody uses any more."""
    for name in fs.listdir(parent):
        if not name.startswith(prefix):
            continue
        try:
            fd = os.open(parent / name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue  # gone, or nothing of ours
        try:
            if os.fstat(fd).st_uid == os.geteuid():
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fs.rmtree(parent / name)
        except OSError:
            pass  # it lives, or nobody can tell
        finally:
            os.close(fd)
