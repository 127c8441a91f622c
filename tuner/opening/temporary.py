"""The directory for what the trials of a run make with `tempfile`."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import stat
import tempfile
from pathlib import Path

from trainables.store import fs, owned_directory
from tuner import knobs
from tuner.experiment.paths import ExperimentPaths, as_local_path, safe_name

SOCKETS_FIT = 50
"""Longest temporary directory in which a socket's path still fits into 108 bytes."""


def make(paths: ExperimentPaths, id: str) -> Path:
    """A short directory on the filesystem of the results, emptied now: what lies in it is of a dead owner.

    TUNE_TMPDIR names another place. What killed agents and lines to other hosts left on this one goes too.
    """
    for prefix in (owned_directory.AGENT_PREFIX, owned_directory.SSH_PREFIX):
        owned_directory.sweep(Path(tempfile.gettempdir()), prefix)
    chosen = knobs.temporary_dir()
    directory = paths.root.parent / ".tmp" / id
    if chosen is not None or len(str(directory)) > SOCKETS_FIT:
        place = Path(tempfile.gettempdir()) if chosen is None else as_local_path(chosen)
        user = hashlib.sha256(str(paths.root).encode()).hexdigest()[:8]
        directory = place / f"tuner-{os.getuid()}-{user}"
    for number in itertools.count():
        free = directory if not number else directory.with_name(f"{directory.name}.{number}")
        if _emptied(free) and _made(free):
            return free
    raise AssertionError("there is always another number")


def _emptied(directory: Path) -> bool:
    """Remove what a dead owner left; False: it is not ours. In a shared directory anybody may have taken the name."""
    try:
        found = os.lstat(directory)
    except FileNotFoundError:
        return True
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return False
    fs.rmtree(directory)
    return True


def _made(directory: Path) -> bool:
    while True:
        fs.make_dirs(directory.parent)
        try:
            fs.mkdir(directory, 0o700)
        except FileNotFoundError:
            continue  # a run beside this one ended just now, and took the empty parent with it
        except FileExistsError:
            return False  # somebody was faster
        return True


def remove_left(paths: ExperimentPaths, id: object) -> None:
    """Remove what a killed run of an experiment left that is claimed, and whose place another one takes."""
    if isinstance(id, str) and id and safe_name(id) == id:
        remove(paths.root.parent / ".tmp" / id)  # elsewhere it goes by the path, and the next start there empties it


def remove(directory: Path) -> None:
    """Remove it at the end of the run, and the place that all runs share when it was the last."""
    fs.remove_quietly(directory)
    if directory.parent.name == ".tmp":
        with contextlib.suppress(OSError):  # others are in it
            fs.rmdir(directory.parent)
