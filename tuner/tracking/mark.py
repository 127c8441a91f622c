"""`Mark`: a small file in a trial's directory that says which run it has at a tracker, and what was sent to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
from blake3 import blake3

from trainables.decoding import decode
from trainables.store import fs
from tuner.experiment.paths import TrialPaths


@dataclass(slots=True)
class Mark:
    """What a resume needs to go on with the same run."""

    run_id: str = ""
    number: int = 1
    """Of the trial's runs."""
    sent: int = 0
    safe: int = 0
    saved: int = 0
    """The trial's save up to which checkpoints were stored, counted from 1 over all its life."""
    ended: str = ""
    """How the run was closed."""


def mark_path(directory: Path, tracker: str, destination: str) -> Path:
    """Where the mark of a trial lies."""
    return TrialPaths(directory).tracked(f"{tracker}-{blake3(destination.encode()).hexdigest()[:8]}")


def read_mark(path: Path) -> Mark:
    """The mark; a new one where there is none, or a damaged one."""
    try:
        return decode(fs.read_file(path), Mark)
    except (FileNotFoundError, msgspec.MsgspecError):
        return Mark()


def write_mark(path: Path, mark: Mark) -> None:
    """Replace it, safe from a kill of this process."""
    beside = path.with_name(f".{path.name}.tmp")
    fs.write_file(beside, msgspec.json.encode(mark), fsync=False)
    fs.rename(beside, path)
