"""Ownership locks of `AtomicDirectory`: one process at a time saves into a directory under a name."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import socket
from pathlib import Path

from trainables.errors import SessionError

_log = logging.getLogger(__name__)


class SaverLocks:
    """Which savers are this process's: it holds a lock for each, which the kernel lets go however the process ends.

    Several in one process share it. Forked children, as a loader's workers, do not have it: it is fcntl's, not flock's.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[int, Path], tuple[int, int]] = {}
        """(process, path) -> (descriptor, how many savers). Closing any other descriptor would lose the lock."""

    def claim(self, path: Path) -> None:
        """Raises SessionError when another process of this machine holds it."""
        key = (os.getpid(), path)
        if key in self._held:
            fd, count = self._held[key]
            self._held[key] = fd, count + 1
            return
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT):
                return  # who cannot write it cannot save either, but may look
            raise
        me = f"process {os.getpid()} on {socket.gethostname()}"
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                who = os.pread(fd, 1000, 0).decode(errors="replace")
                if _same_host(who, me):
                    os.close(fd)
                    raise SessionError(
                        f"AtomicDirectory: {_said(who, path)}. End it, or give this one another name= or "
                        "output_directory. To look at its latest checkpoint read the link to it"
                    ) from None
                # Of a machine that is gone a network filesystem may keep the lock: that must not hold up a job.
                _log.warning(
                    "%s, or was when that machine ended; if it still runs, end one of the two", _said(who, path)
                )
        with contextlib.suppress(OSError):  # it is for messages only
            os.truncate(fd, 0)
            os.pwrite(fd, me.encode(), 0)
        self._held[key] = fd, 1

    def release(self, path: Path) -> None:
        key = (os.getpid(), path)
        if key in self._held:
            fd, count = self._held.pop(key)
            if count > 1:
                self._held[key] = fd, count - 1
            else:
                os.close(fd)


def _same_host(who: str, me: str) -> bool:
    return who.rpartition(" on ")[2] in ("", me.rpartition(" on ")[2])


def _said(who: str, path: Path) -> str:
    name = path.name.removeprefix(".").removesuffix(".owner")
    return f"{who or 'another process'} is saving into {path.parent} as {name!r}"


saver_locks = SaverLocks()
"""Those of this process."""
