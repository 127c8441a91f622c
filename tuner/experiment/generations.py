"""The records of generations (design rule R12): one file per driver's life, which says who owns the experiment.

What it says of its owner's life are two fields of fixed width at its end, rewritten in place: that needs no room on a
full disk, and a reader sees the old value or the new.
"""

from __future__ import annotations

import datetime
from pathlib import Path

import msgspec

from trainables.decoding import decode
from trainables.store import fs
from tuner.experiment import formats
from tuner.experiment.hostile import said
from tuner.experiment.paths import ExperimentPaths, parse_generation
from tuner.experiment.processes import Identity

TAIL = '"state":"{state:8}","heartbeat":{heartbeat:10d}}}\n'
TAIL_SIZE = len(TAIL.format(state="held", heartbeat=0))


class GenerationRecord(msgspec.Struct, frozen=True):
    """What generations/<number>.json says."""

    generation: int
    id: str
    owner: Identity
    since: float
    """Seconds since the epoch, for people; nothing is decided by it."""
    format: int = 1
    brief: bool = False
    """A command's, which runs nothing and is done in a moment."""
    state: str = "held"
    heartbeat: int = 0

    @property
    def released(self) -> bool:
        return self.state.strip() != "held"

    def __str__(self) -> str:
        since = datetime.datetime.fromtimestamp(self.since, datetime.UTC).isoformat(timespec="seconds")
        return f"generation {self.generation}: pid {self.owner.pid} on {self.owner.host} since {since}"


def encode_record(record: GenerationRecord, *, released: bool = False) -> bytes:
    """The bytes of generations/<number>.json: what says of its owner's life comes last, in a fixed width."""
    body = msgspec.json.encode(record)
    state = "released" if released else "held"
    return body[: body.rindex(b'"state":')] + TAIL.format(state=state, heartbeat=0).encode()


def read_records(paths: ExperimentPaths) -> list[GenerationRecord]:
    """All generations whose record can be read, oldest first."""
    try:
        names = fs.listdir(paths.generations)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = (read_record(paths.generations / name) for name in names if parse_generation(name) is not None)
    return sorted((record for record in found if record is not None), key=lambda record: record.generation)


def read_record(path: Path) -> GenerationRecord | None:
    """One generation's record; None when it is not there or cannot be read. Raises NewerFormatError."""
    try:
        return decode_record(fs.read_file(path), path)
    except (FileNotFoundError, IsADirectoryError, msgspec.DecodeError):
        return None


def decode_record(data: bytes, where: str | Path) -> GenerationRecord:
    """A generation's record, found at `where`. Raises NewerFormatError, msgspec.DecodeError that names the place."""
    formats.check_json(data, where)
    try:
        return decode(data, GenerationRecord)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(f"{where} cannot be read: {said(error)}") from error
