"""Which attempts are run by a process that no driver has started, and that outlives one.

Such a process holds a lock in its trial's directory from the moment that it has the trial. The kernel lets go of it
when the process ends, whatever ends it: a driver that comes after one that was killed sees whether the attempt lives.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path

from trainables.starting import start_thread

NAME = ".held"


def hold(directory: Path) -> int:
    """Hold an attempt of the trial; returns a descriptor that does, until it is closed.

    Where somebody holds it still, it does so as soon as that ends: of a process that dies, the lines may end before its
    files do, and what it has started may outlive it. -1: this filesystem has no locks.
    """
    try:
        fd = os.open(directory / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return -1  # a full disk, a directory that is gone: whoever saves there says so
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        start_thread(_hold_when_free, name="hold-trial", args=(os.dup(fd),))
    except OSError:
        os.close(fd)
        return -1
    return fd


def _hold_when_free(fd: int) -> None:
    """A descriptor of its own, for that of the caller may be closed, and its number another file's, any moment."""
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_EX)
    os.close(fd)  # the lock stays with the caller's, or ends where that is closed


def is_held(directory: Path) -> bool:
    """Whether a process of this host runs an attempt of the trial in that directory."""
    try:
        fd = os.open(directory / NAME, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EAGAIN, errno.EACCES)
    finally:
        os.close(fd)
    return False


def wait_until_free(directory: Path) -> None:
    """Return when no process runs an attempt of the trial any more."""
    with contextlib.suppress(OSError):  # gone, or without locks: nobody holds it
        fd = os.open(directory / NAME, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)
        finally:
            os.close(fd)
