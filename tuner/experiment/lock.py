"""Generations and ownership (design rule R12): every driver's life on an experiment has a number, and one owner.

The record of a generation appears with its content and exclusively, so of two drivers that start in the same instant
one wins and the other can say who did. What it says of its owner's life are two fields of fixed width at its end,
rewritten in place: that needs no room on a full disk, and a reader sees the old value or the new.
"""

from __future__ import annotations

import datetime
import fcntl
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from trainables.store import fs
from tuner.clock import Clock
from tuner.error import NewerFormatError, OwnedElsewhereError
from tuner.experiment import formats
from tuner.experiment.hostile import said
from tuner.experiment.paths import ExperimentPaths, parse_generation, parse_segment, parse_snapshot
from tuner.experiment.processes import Identity, Processes, describe

log = logging.getLogger(__name__)

HEARTBEAT_S = 10.0
"""So often an owner gives a sign of life, here and in a replica, also while it waits for something long."""
STALE_S = 60.0
"""A heartbeat that has not moved for so long, on the watcher's monotonic clock, is a dead owner's."""
_LOOK_S = 1.0
_KILL_S = 30.0
_TAIL = '"state":"{state:8}","heartbeat":{heartbeat:10d}}}\n'
_TAIL_SIZE = len(_TAIL.format(state="held", heartbeat=0))


class Record(msgspec.Struct, frozen=True):
    """What generations/<number>.json says."""

    generation: int
    id: str
    owner: Identity
    since: float
    """Seconds since the epoch, for people; nothing is decided by it."""
    format: int = 1
    state: str = "held"
    heartbeat: int = 0

    @property
    def released(self) -> bool:
        return self.state.strip() != "held"

    def __str__(self) -> str:
        since = datetime.datetime.fromtimestamp(self.since, datetime.UTC).isoformat(timespec="seconds")
        return f"generation {self.generation}: pid {self.owner.pid} on {self.owner.host} since {since}"


@dataclass(frozen=True)
class Parent:
    """The generation before this one that left a record."""

    generation: int
    id: str


class Ownership:
    """One driver's life on an experiment, from `claim` to `release`."""

    def __init__(self, paths: ExperimentPaths, record: Record, lock_fd: int, parent: Parent | None) -> None:
        self.generation = record.generation
        self.id = record.id
        self.lock_fd = lock_fd
        """Holds the lock; inherited by every process that the driver starts."""
        self.parent = parent
        self.record = record
        self._paths = paths
        self._path = os.fspath(paths.generation(record.generation))
        self._next = os.fspath(paths.generation(record.generation + 1))
        self._beats = 0
        self._silent = False
        self._released = False

    def check(self) -> None:
        """Look whether another driver has taken over; two stats.

        Raises:
            OwnedElsewhereError: it has, or the experiment's directory is gone; the message says who.
        """
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
            _unlock(self.lock_fd)
            os.close(self.lock_fd)

    def _write_tail(self, state: str) -> None:
        # Opened each time: on a network filesystem it is the close that others get to see.
        fd = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            tail = _TAIL.format(state=state, heartbeat=self._beats).encode()
            os.pwrite(fd, tail, os.fstat(fd).st_size - _TAIL_SIZE)
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


def claim(
    paths: ExperimentPaths,
    *,
    clock: Clock,
    takeover: bool = False,
    above: int = 0,
    processes: Processes | None = None,
    wait: Callable[[float], None] = time.sleep,
    say: Callable[[str], None] = log.warning,
) -> Ownership:
    """Become the owner of an experiment: end what is left of the last one, take the next generation, take the lock.

    Args:
        paths: the experiment; its directory is made when absent.
        clock: its monotonic time measures the silence of an owner that cannot be seen from here.
        takeover: do not wait for a sign of life of such an owner. A live owner on this host is never taken over.
        above: the generation is higher than that: a replica knows of it.
        processes: what can be seen of this host.
        wait: sleeps for that many seconds.
        say: gets the line that explains a wait.

    Raises:
        OwnedElsewhereError: somebody owns it; the message names host, pid and since when.
    """
    return _Claim(paths, processes or Processes(), clock=clock, takeover=takeover, wait=wait, say=say).run(above)


def encode_record(record: Record, *, released: bool = False) -> bytes:
    """The bytes of generations/<number>.json: what says of its owner's life comes last, in a fixed width."""
    body = msgspec.json.encode(record)
    state = "released" if released else "held"
    return body[: body.rindex(b'"state":')] + _TAIL.format(state=state, heartbeat=0).encode()


def read_records(paths: ExperimentPaths) -> list[Record]:
    """All generations whose record can be read, oldest first."""
    try:
        names = fs.listdir(paths.generations)
    except FileNotFoundError:
        return []
    found = (read_record(paths.generations / name) for name in names if parse_generation(name) is not None)
    return sorted((record for record in found if record is not None), key=lambda record: record.generation)


def read_record(path: Path) -> Record | None:
    """One generation's record; None when it is not there or cannot be read. Raises NewerFormatError."""
    try:
        return decode_record(fs.read_file(path), path)
    except (FileNotFoundError, IsADirectoryError, msgspec.DecodeError):
        return None


def decode_record(data: bytes, where: str | Path) -> Record:
    """A generation's record, found at `where`. Raises NewerFormatError, msgspec.DecodeError that names the place."""
    formats.check_json(data, where)
    try:
        return msgspec.json.decode(data, type=Record)
    except (msgspec.DecodeError, RecursionError) as error:
        raise msgspec.DecodeError(f"{where} cannot be read: {said(error)}") from error


def _stands(path: str, *, unseen: bool) -> bool:
    """Whether there is a file of that name; `unseen` where the disk does not say so just now."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return unseen  # an error of a network's disk, for one: the next look may tell
    return True


def _highest_journaled(paths: ExperimentPaths) -> int:
    """The highest generation that left a file in the journal."""
    names = fs.listdir(paths.journal) if fs.exists(paths.journal) else []
    return max((parsed[0] for parsed in map(_journaled, names) if parsed), default=0)


def _journaled(name: str) -> tuple[int, int] | None:
    return parse_segment(name) or parse_snapshot(name)


def _recorded(path: Path) -> list[tuple[int, int]]:
    try:
        lines = fs.read_file(path).decode().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    pairs = (line.split() for line in lines if line.endswith("\n"))  # a torn last line names no whole number
    return [(int(pair[0]), int(pair[1])) for pair in pairs if len(pair) == 2]


def _create(paths: ExperimentPaths, record: Record, wait: Callable[[float], None]) -> Record | None:
    """Take the number; None when somebody was faster."""
    path = paths.generation(record.generation)
    text = encode_record(record)
    temporary = paths.generations / f".{record.id}.tmp"
    fs.write_file(temporary, text, fsync=True)
    try:
        fs.link(temporary, path)  # exclusive, and the name never stands for less than the whole content
    except FileNotFoundError:
        return None  # `_remove_leftovers` of the one who was faster
    except FileExistsError:
        if not _is_same(temporary, path):
            return None
    except OSError:
        # A filesystem without hard links: who finds the file before it is filled waits a moment and looks again.
        try:
            fs.write_file(path, text, fsync=True, exclusive=True)
        except FileExistsError:
            wait(_LOOK_S / 10)
            return None
    finally:
        fs.remove_quietly(temporary)
    fs.fsync_dir(paths.generations)
    return record


def _is_same(temporary: Path, path: Path) -> bool:
    """True if the link is ours: a network filesystem lost its first answer."""
    try:
        return os.path.samefile(temporary, path)
    except FileNotFoundError:
        return False


def _remove_leftovers(paths: ExperimentPaths) -> None:
    """Remove what drivers left that were killed within `claim`; one that is within it now finds the number taken."""
    for name in fs.listdir(paths.generations):
        if name.startswith("."):
            fs.remove_quietly(paths.generations / name)


def _lock(paths: ExperimentPaths, fd: int, processes: Processes) -> int:
    """Take the lock; returns the descriptor that holds it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fd
    except BlockingIOError:
        pass
    except OSError:
        return fd  # no locks on this filesystem: the record was created exclusively, that is enough
    holders = processes.holders(paths.lock)
    if holders:
        raise OwnedElsewhereError(
            f"{paths.root}: {paths.lock} is still held by what an earlier driver left running: "
            f"{', '.join(map(describe, holders))}. End it, then start again"
        )
    # Held where nobody here can look: by trials of a stale owner that was taken over. They keep the old file.
    fresh_path = paths.lock.with_name(f".{secrets.token_hex(8)}.lock")
    fresh = fs.open_append(fresh_path)
    fcntl.flock(fresh, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fs.rename(fresh_path, paths.lock)
    os.close(fd)
    return fresh


def _unlock(fd: int) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_UN)  # also for those that inherited it
    except OSError:
        pass  # no locks on this filesystem


class _Claim:
    """One driver's way to its ownership."""

    def __init__(
        self,
        paths: ExperimentPaths,
        processes: Processes,
        *,
        clock: Clock,
        takeover: bool,
        wait: Callable[[float], None],
        say: Callable[[str], None],
    ) -> None:
        self._paths, self._processes, self._clock = paths, processes, clock
        self._takeover, self._wait, self._say = takeover, wait, say
        self._me = processes.me()

    def run(self, above: int) -> Ownership:
        paths = self._paths
        fs.make_dirs(paths.generations)
        # Open before the record exists: who finds the record asks whether its owner has this very file open.
        lock_fd = fs.open_append(paths.lock)
        record: Record | None = None
        try:
            while record is None:
                # The number follows from what was looked at, never from a later look: who comes first makes it taken.
                highest, records = self._look()
                if records and not records[-1].released:
                    self._refuse_if_owned(records[-1])
                self._end_leftovers(records)
                number = max(highest, above) + 1
                id = secrets.token_hex(16)
                record = _create(paths, Record(number, id, self._me, self._clock.time(), formats.FORMAT), self._wait)
            lock_fd = _lock(paths, lock_fd, self._processes)
            _remove_leftovers(paths)
        except BaseException:
            os.close(lock_fd)
            if record is not None:
                fs.unlink(paths.generation(record.generation))  # nothing was done under this number
            raise
        parent = Parent(records[-1].generation, records[-1].id) if records else None
        return Ownership(paths, record, lock_fd, parent)

    def _look(self) -> tuple[int, list[Record]]:
        """The highest generation that left any trace, and the records that can be read."""
        used = _highest_journaled(self._paths)
        numbers = sorted(filter(None, map(parse_generation, fs.listdir(self._paths.generations))))
        if not numbers:
            return used, []
        if read_record(self._paths.generation(numbers[-1])) is None:
            self._wait(_LOOK_S)  # being written on a filesystem without hard links, or torn by a power cut
        found = (read_record(self._paths.generation(number)) for number in numbers)
        return max(used, numbers[-1]), [record for record in found if record is not None]

    def _refuse_if_owned(self, record: Record) -> None:
        root = self._paths.root
        owned = OwnedElsewhereError(
            f"{root} is owned by another driver ({record}). Wait until it has ended, end it, or use another name"
        )
        if self._sees(record):
            # A live process that has not this very lock file open owns the directory that this one was copied from.
            if self._lives(record) and self._processes.holds(record.owner.pid, self._paths.lock):
                raise owned
            return
        if self._takeover:
            return
        self._say(
            f"{root} was last owned by {record}, which cannot be seen from here: waiting up to {STALE_S:.0f} s for a "
            "sign of life (takeover=True does not wait)"
        )
        until = self._clock.monotonic() + STALE_S
        while self._clock.monotonic() < until:
            self._wait(_LOOK_S)
            now = read_record(self._paths.generation(record.generation))
            if now is not None and now.heartbeat != record.heartbeat:
                raise owned
            if now is not None and now.released:
                return

    def _end_leftovers(self, records: list[Record]) -> None:
        """End what dead owners of this pid namespace left running."""
        recorded: list[tuple[int, int]] = []
        owners = []
        for record in records:
            if self._sees(record) and (record.released or not self._lives(record)):
                owners.append(record.id)
                recorded += _recorded(self._paths.processes(record.generation))
        if not owners:
            return
        stubborn = self._processes.end(recorded, owners, timeout_s=_KILL_S)
        if stubborn:
            raise OwnedElsewhereError(
                f"{self._paths.root}: processes of an earlier driver still run and cannot be ended: "
                f"{', '.join(map(describe, stubborn))}. End them, then start again"
            )

    def _sees(self, record: Record) -> bool:
        """True when its owner belongs to this pid namespace: only there is one called dead by looking."""
        mine, its = self._me, record.owner
        return (mine.host, mine.boot, mine.pid_namespace) == (its.host, its.boot, its.pid_namespace)

    def _lives(self, record: Record) -> bool:
        return self._processes.start_time(record.owner.pid) == record.owner.start
