"""Whether the driver of an experiment still runs, as a reader sees it: nothing is claimed and nothing waited for."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from trainables.store import fs
from tuner.experiment.generations import GenerationRecord, read_records
from tuner.experiment.ownership import STALE_S
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.processes import Processes


class Liveness(Enum):
    """What has become of an experiment's last driver."""

    RUNNING = "running"
    """It lives; its trials save and end as it says."""
    ENDED = "ended"
    """It gave the experiment up in order: every checkpoint that was due is there."""
    KILLED = "killed"
    """It is gone without a word: a resume goes on from the newest checkpoints."""
    UNKNOWN = "running, or killed"
    """It is, or was, where nobody can look from here."""


class LastDriver(NamedTuple):
    """An experiment's last driver."""

    liveness: Liveness
    record: GenerationRecord | None = None
    """None: there is none that can be read."""

    def __str__(self) -> str:
        if self.record is None or self.liveness is Liveness.ENDED:
            return self.liveness.value
        return f"{self.liveness.value} (pid {self.record.owner.pid} on {self.record.owner.host})"


def last_driver(paths: ExperimentPaths, now: float, processes: Processes | None = None) -> LastDriver:
    """Look at the records of an experiment, here or fetched from a replica.

    Of a driver on another machine that shares this directory the time of its last heartbeat decides: silent for 60 s is
    dead.

    Args:
        now: seconds since the epoch.
    """
    seen = processes or Processes()
    records = read_records(paths)
    if not records:
        return LastDriver(Liveness.UNKNOWN)
    record = records.pop()
    while record.released and records and not _has_facts(paths, record):
        record = records.pop()  # a command that owned it for a moment, as `tuner rm`
    if record.released or _is_released_in_replica(paths, record.generation):
        return LastDriver(Liveness.ENDED, record)
    if seen.sees(record.owner):
        return LastDriver(Liveness.RUNNING if _lives(paths, record, seen) else Liveness.KILLED, record)
    if not fs.exists(paths.lock):
        return LastDriver(Liveness.UNKNOWN, record)  # a copy: its files have times of their own
    silent = now - paths.generation(record.generation).stat().st_mtime
    return LastDriver(Liveness.KILLED if silent > STALE_S else Liveness.RUNNING, record)


def _has_facts(paths: ExperimentPaths, record: GenerationRecord) -> bool:
    """Whether that driver has written to the journal, or had it folded."""
    names = fs.listdir(paths.journal) if fs.is_dir(paths.journal) else []
    own = f"{record.generation:06d}-"
    return any(name.startswith((own, f"snapshot-{own}")) for name in names)


def _lives(paths: ExperimentPaths, record: GenerationRecord, processes: Processes) -> bool:
    """A live process that has not this very lock file open owns the directory that this one was copied from."""
    owner = record.owner
    if not processes.lives(owner):
        return False
    return owner == processes.me() or not fs.exists(paths.lock) or processes.holds(owner.pid, paths.lock)


def _is_released_in_replica(paths: ExperimentPaths, generation: int) -> bool:
    """In a replica the heartbeats are a file of their own: a record is never written to again."""
    try:
        return not fs.read_file(paths.heartbeats(generation)).startswith(b"held")
    except FileNotFoundError:
        return False
