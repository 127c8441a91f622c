"""Ownership of an experiment (design rule R12): what a driver holds from claim to release, with its heartbeat."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from trainables.store import fs
from tuner.error import NewerFormatError, OwnedElsewhereError
from tuner.experiment.generations import TAIL, TAIL_SIZE, GenerationRecord, read_records
from tuner.experiment.paths import ExperimentPaths

log = logging.getLogger(__name__)

HEARTBEAT_S = 10.0
"""So often an owner gives a sign of life, here and in a replica, also while it waits for something long."""
STALE_S = 60.0
"""A heartbeat that has not moved for so long, on the watcher's monotonic clock, is a dead owner's."""


class Ownership:
    """One driver's life on an experiment, from `claim` to `release`."""

    def __init__(self, paths: ExperimentPaths, record: GenerationRecord, lock_fd: int, parent_id: str | None) -> None:
        self.generation = record.generation
        self.id = record.id
        self.lock_fd = lock_fd
        """Holds the lock; inherited by every process that the driver starts."""
        self.parent_id = parent_id
        """Of the generation before this one that left a record."""
        self.record = record
        self._paths = paths
        self._path = os.fspath(paths.generation(record.generation))
        self._next = os.fspath(paths.generation(record.generation + 1))
        self._beats = 0
        self._silent = False
        self._released = False

    def check(self) -> None:
        """Raise OwnedElsewhereError, which names who took over, or that the directory is gone. Costs two stats."""
        if _stands(self._next, unseen=False):
            newer = self._successor()
            raise OwnedElsewhereError(f"{self._paths.root} was taken over by {newer}; this driver writes nothing more")
        if not _stands(self._path, unseen=True):
            raise OwnedElsewhereError(f"{self._path} is gone: {self._paths.root} was removed or replaced")

    def _successor(self) -> str:
        """Who has taken over, in words."""
        try:
            records = [record for record in read_records(self._paths) if record.generation > self.generation]
        except NewerFormatError:
            return f"generation {self.generation + 1}, of a newer version of the package"
        return str(records[-1]) if records else f"generation {self.generation + 1}"

    def follow(self, paths: ExperimentPaths) -> None:
        """Its directory has been renamed, by this owner."""
        self._paths = paths
        self._path = os.fspath(paths.generation(self.generation))
        self._next = os.fspath(paths.generation(self.generation + 1))

    def record_processes(self, processes: Iterable[tuple[int, int]]) -> None:
        """Remember (pid, start time) of processes that must not outlive this driver."""
        lines = "".join(f"{pid} {start}\n" for pid, start in processes)
        fd = fs.open_append(self._paths.processes(self.generation))
        try:
            fs.write(fd, lines.encode())
        finally:
            fs.close(fd)

    def heartbeat(self) -> None:
        """A sign of life for other hosts, every 10 s. Raises OwnedElsewhereError as `check` does.

        One that cannot be written is a warning: what this driver still may do, the journal's own writes decide.
        """
        self.check()
        self._beats += 1
        try:
            self._write_tail("held")
        except OSError as error:
            if not self._silent:
                log.warning(
                    "%s: no sign of life could be written (%s); where that lasts, a start on another host takes this "
                    "driver for dead after %.0f s",
                    self._path,
                    error.strerror or error,
                    STALE_S,
                )
            self._silent = True
        else:
            self._silent = False

    def release(self) -> None:
        """Give the experiment up in order. Doing it twice is no error."""
        if self._released:
            return
        self._released = True
        try:
            self._write_tail("released")
        except FileNotFoundError:
            pass  # the experiment was removed: there is nothing to give up
        except OSError as error:
            log.warning("%s: not released (%s): a start on another host waits first", self._path, error.strerror)
        finally:
            with suppress(OSError):  # no locks on this filesystem
                fcntl.flock(self.lock_fd, fcntl.LOCK_UN)  # also for those that inherited it
            os.close(self.lock_fd)

    def _write_tail(self, state: str) -> None:
        # Opened each time: on a network filesystem it is the close that others get to see.
        fd = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            tail = TAIL.format(state=state, heartbeat=self._beats).encode()
            os.pwrite(fd, tail, os.fstat(fd).st_size - TAIL_SIZE)
        finally:
            os.close(fd)


@contextmanager
def beating(ownership: Ownership, *, every_s: float = HEARTBEAT_S) -> Iterator[None]:
    """Give signs of life from a thread while the caller is busy with something long.

    Raises OwnedElsewhereError at the end when somebody has taken over meanwhile.
    """
    end, taken = threading.Event(), []

    def beat() -> None:
        while not end.wait(every_s):
            try:
                ownership.heartbeat()
            except OwnedElsewhereError as error:
                taken.append(error)
                return

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
    if taken:
        raise taken[0]


def _stands(path: str, *, unseen: bool) -> bool:
    """Whether there is a file of that name; `unseen` where the disk does not say so just now."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return unseen  # an error of a network's disk, for one: the next look may tell
    return True
