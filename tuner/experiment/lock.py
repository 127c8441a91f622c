"""Generations and ownership (design rule R12): every driver's life on an experiment has a number, and one owner.

The record of a generation appears with its content and exclusively, so of two drivers that start in the same instant
one wins and the other can say who did. What it says is in `tuner.experiment.generations`.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from trainables.quick_dataclass import dataclass
from trainables.store import fs
from tuner.clock import Clock
from tuner.error import OwnedElsewhereError
from tuner.experiment import formats
from tuner.experiment.generations import GenerationRecord, encode_record, read_record
from tuner.experiment.ownership import STALE_S, Ownership
from tuner.experiment.paths import ExperimentPaths, parse_generation, parse_segment, parse_snapshot
from tuner.experiment.processes import Processes, describe

log = logging.getLogger(__name__)

_LOOK_S = 1.0
_KILL_S = 30.0


def claim(
    paths: ExperimentPaths,
    *,
    clock: Clock,
    takeover: bool = False,
    above: int = 0,
    processes: Processes | None = None,
    wait: Callable[[float], None] = time.sleep,
    say: Callable[[str], None] = log.warning,
    brief: bool = False,
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
        brief: to be done in a moment: a driver that starts meanwhile waits, and another brief owner is refused.

    Raises:
        OwnedElsewhereError: somebody owns it; the message names host, pid and since when.
    """
    return _Claim(paths, processes or Processes(), clock, takeover, wait, say, brief).run(above)


def _highest_journaled(paths: ExperimentPaths) -> int:
    """The highest generation that left a file in the journal."""
    names = fs.listdir(paths.journal) if fs.exists(paths.journal) else []
    found = (parse_segment(name) or parse_snapshot(name) for name in names)
    return max((parsed[0] for parsed in found if parsed), default=0)


def _recorded(path: Path) -> list[tuple[int, int]]:
    try:
        lines = fs.read_file(path).decode().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    pairs = (line.split() for line in lines if line.endswith("\n"))  # a torn last line names no whole number
    return [(int(pair[0]), int(pair[1])) for pair in pairs if len(pair) == 2]


def _create(paths: ExperimentPaths, record: GenerationRecord, wait: Callable[[float], None]) -> GenerationRecord | None:
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


@dataclass
class _Claim:
    """One driver's way to its ownership; the fields are the arguments of `claim`."""

    paths: ExperimentPaths
    processes: Processes
    clock: Clock
    takeover: bool
    wait: Callable[[float], None]
    say: Callable[[str], None]
    brief: bool

    def __post_init__(self) -> None:
        self.me = self.processes.me()

    def run(self, above: int) -> Ownership:
        paths = self.paths
        fs.make_dirs(paths.generations)
        # Open before the record exists: who finds the record asks whether its owner has this very file open.
        lock_fd = fs.open_append(paths.lock)
        record: GenerationRecord | None = None
        try:
            while record is None:
                # The number follows from what was looked at, never from a later look: who comes first makes it taken.
                highest, records = self._look()
                if records and not records[-1].released:
                    self._refuse_if_owned(records[-1])
                self._end_leftovers(records)
                number = max(highest, above) + 1
                id = secrets.token_hex(16)
                record = _create(
                    paths,
                    GenerationRecord(number, id, self.me, self.clock.time(), formats.FORMAT, self.brief),
                    self.wait,
                )
            lock_fd = _lock(paths, lock_fd, self.processes)
            _remove_leftovers(paths)
        except BaseException:
            os.close(lock_fd)
            if record is not None:
                fs.unlink(paths.generation(record.generation))  # nothing was done under this number
            raise
        return Ownership(paths, record, lock_fd, records[-1].id if records else None)

    def _look(self) -> tuple[int, list[GenerationRecord]]:
        """The highest generation that left any trace, and the records that can be read."""
        used = _highest_journaled(self.paths)
        numbers = sorted(filter(None, map(parse_generation, fs.listdir(self.paths.generations))))
        if not numbers:
            return used, []
        if read_record(self.paths.generation(numbers[-1])) is None:
            self.wait(_LOOK_S)  # being written on a filesystem without hard links, or torn by a power cut
        found = (read_record(self.paths.generation(number)) for number in numbers)
        return max(used, numbers[-1]), [record for record in found if record is not None]

    def _refuse_if_owned(self, record: GenerationRecord) -> None:
        root = self.paths.root
        owned = OwnedElsewhereError(
            f"{root} is owned by another driver ({record}). Wait until it has ended, end it, or use another name"
        )
        if self.processes.sees(record.owner):
            # A live process that has not this very lock file open owns the directory that this one was copied from.
            if self._lives(record) and not (record.brief and not self.brief and self._ends(record)):
                raise owned
            return
        if self.takeover:
            return
        self.say(
            f"{root} was last owned by {record}, which cannot be seen from here: waiting up to {STALE_S:.0f} s for a "
            "sign of life (takeover=True does not wait)"
        )
        until = self.clock.monotonic() + STALE_S
        while self.clock.monotonic() < until:
            self.wait(_LOOK_S)
            now = read_record(self.paths.generation(record.generation))
            if now is not None and now.heartbeat != record.heartbeat:
                raise owned
            if now is not None and now.released:
                return

    def _lives(self, record: GenerationRecord) -> bool:
        return self.processes.lives(record.owner) and self.processes.holds(record.owner.pid, self.paths.lock)

    def _ends(self, record: GenerationRecord) -> bool:
        """Wait for a command that is done in a moment; False: it takes long."""
        until = self.clock.monotonic() + STALE_S
        while self.clock.monotonic() < until:
            now = read_record(self.paths.generation(record.generation))
            if now is None or now.released or not self._lives(record):
                return True
            self.wait(_LOOK_S / 10)
        return False

    def _end_leftovers(self, records: list[GenerationRecord]) -> None:
        """End what dead owners of this pid namespace left running."""
        recorded: list[tuple[int, int]] = []
        owners = []
        for record in records:
            if self.processes.sees(record.owner) and (record.released or not self.processes.lives(record.owner)):
                owners.append(record.id)
                recorded += _recorded(self.paths.processes(record.generation))
        if not owners:
            return
        stubborn = self.processes.end(recorded, owners, timeout_s=_KILL_S)
        if stubborn:
            raise OwnedElsewhereError(
                f"{self.paths.root}: processes of an earlier driver still run and cannot be ended: "
                f"{', '.join(map(describe, stubborn))}. End them, then start again"
            )
