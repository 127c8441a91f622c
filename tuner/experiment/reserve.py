"""Disk kept for the last word: 1 MiB beyond what is written, so that a full disk can be left."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

from trainables.store import fs
from tuner.error import StorageFullError

RESERVE = 1024 * 1024
_STEP = 256 * 1024
"""Reserved beyond that at a time, so that few writes ask for more."""
_KEEP_SIZE = 1
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_libc = ctypes.CDLL(None, use_errno=True)


def is_full(error: OSError) -> bool:
    """True for an error that says the disk, or the user's share of it, is full."""
    return error.errno in _FULL


def cannot_write(path: Path, error: OSError) -> StorageFullError:
    """What to raise where a disk takes nothing more: it is full, or has become read-only."""
    if is_full(error):
        said = f"{fs.free_bytes(path)} bytes free; free some space and resume the run"
    else:
        said = "resume the run when the disk can be written again (the kernel's log says why it cannot)"
    return StorageFullError(error.errno, f"{error.strerror}: cannot write to {path}, {said}")


class Reserve:
    """Blocks beyond the end of one growing file, which nobody else can take.

    Where the filesystem cannot reserve, a file of that size lies beside it and is removed when it is needed.
    """

    def __init__(self, fd: int, spare: Path) -> None:
        self._fd, self._spare = fd, spare
        self._end = 0
        self._can_reserve = True

    def cover(self, size: int) -> bool:
        """Reserve, for a file of `size` bytes, the reserve behind it; False when the disk is too full for that."""
        if size + RESERVE <= self._end:
            return True
        if self._can_reserve:
            for end in (size + RESERVE + _STEP, size + RESERVE):
                if _allocate(self._fd, self._end, end - self._end):
                    self._end = end
                    return True
            if is_full(OSError(ctypes.get_errno(), "")):
                return False
            self._can_reserve = False
        try:
            if not fs.exists(self._spare):
                fs.write_file(self._spare, bytes(RESERVE), fsync=False)
        except OSError as error:
            fs.remove_quietly(self._spare)
            if not is_full(error):
                raise
            return False
        return True

    def release(self) -> None:
        """Give the spare file back, for a write that needs its room now."""
        if not self._can_reserve and fs.exists(self._spare):
            fs.unlink(self._spare)

    def lost(self) -> None:
        """The file was truncated, and what was reserved behind it is gone."""
        self._end = 0

    @property
    def held(self) -> bool:
        """True when the file has blocks beyond its end."""
        return self._end > 0


def trim(path: Path) -> None:
    """Give back what a file that is not written any more has reserved beyond its end."""
    try:
        status = os.stat(path)
        if status.st_blocks * 512 > status.st_size + 65536:
            fs.truncate(path, status.st_size)
    except OSError:
        pass  # it only takes more room than it needs to, or is gone


def _allocate(fd: int, offset: int, length: int) -> bool:
    return bool(_libc.fallocate(fd, _KEEP_SIZE, ctypes.c_longlong(offset), ctypes.c_longlong(length)) == 0)
