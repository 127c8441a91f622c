"""The segment that is being written: one file after another, each with a reserve of disk behind it while it is open."""

from __future__ import annotations

import errno
import os

from trainables.store import fs
from tuner.experiment.journal_sync import GroupSync
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reserve import Reserve, is_full, trim

SEGMENT_BYTES = 4 * 1024 * 1024
"""A segment of that size is sealed."""


class OpenSegment:
    """The end of a generation's journal; `sync`, which is told what file is open, makes it durable."""

    def __init__(self, paths: ExperimentPaths, generation: int, sync: GroupSync) -> None:
        self.number = 0
        """Of the file that is open, or was last."""
        self.size = 0
        self.sealed = 0
        """How many files with something in them were closed for good."""
        self._paths, self._generation, self._sync = paths, generation, sync
        self._fd = -1
        self._reserve: Reserve | None = None

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    @property
    def name(self) -> str:
        return self._paths.segment(self._generation, self.number).name

    def room(self, size: int) -> Reserve:
        """The reserve of the file that takes `size` bytes more: the open one, or a new one when that is full."""
        if self._reserve is None or self.size + size > SEGMENT_BYTES:
            self.open_next()
        assert self._reserve is not None
        return self._reserve

    def open_next(self) -> None:
        """Open another file, once the one before it is durable; without room for one the open one stays open."""
        path = self._paths.segment(self._generation, self.number + 1)
        fd = -1
        try:
            fd = fs.open_append(path)
            reserve = Reserve(fd, self._paths.journal / ".reserve")
            if not reserve.cover(0):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            if self.is_open:
                self.close()  # durable before the next one gets a byte: a hole is never a matter of luck
        except OSError as error:
            if fd >= 0:
                fs.close(fd)
                fs.remove_quietly(path)
            if self.is_open and is_full(error):
                return  # the open one grows beyond its size, within its own reserve
            raise
        self.number += 1
        self._fd, self.size, self._reserve = fd, 0, reserve
        self._sync.opened(fd, path)

    def write(self, data: bytes) -> None:
        """All of it, or nothing."""
        try:
            fs.write(self._fd, data)
        except OSError:
            self._cut_back()
            raise
        self.size += len(data)

    def close(self) -> None:
        """Make it durable, and close it for good; an empty file is removed."""
        if not self.is_open:
            return
        path = self._paths.segment(self._generation, self.number)
        self._sync.now()
        fd, held = self._fd, self._reserve is not None and self._reserve.held
        self._fd, self._reserve = -1, None
        self._sync.closed()
        fs.close(fd)
        if self.size == 0:
            fs.remove_quietly(path)
            return
        self.sealed += 1
        if held:
            trim(path)

    def abandon(self) -> None:
        """Close the file as it is, where `close` could not."""
        if self.is_open:
            fs.close(self._fd)
            self._fd = -1

    def _cut_back(self) -> None:
        """Remove what a failed write left half-done: nothing is appended behind a torn line."""
        try:
            fs.truncate(self._paths.segment(self._generation, self.number), self.size)
        except OSError:
            self.close()  # the torn line is then this segment's last, and the facts go to the next one
            self.size = 0
            return
        if self._reserve is not None:
            self._reserve.lost()
            self._reserve.cover(self.size)
