"""The directory for what the trials of a run make with `tempfile`."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from trainables import owned_directory
from trainables.store import fs
from tuner import knobs
from tuner.experiment.paths import ExperimentPaths, as_local_path

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
    if fs.exists(directory):
        fs.rmtree(directory)
    while True:
        fs.make_dirs(directory.parent)
        try:
            fs.mkdir(directory)
        except FileNotFoundError:
            continue  # a run beside this one ended just now, and took the empty parent with it
        fs.chmod(directory, 0o700)
        return directory


def remove(directory: Path) -> None:
    """Remove it at the end of the run, and the place that all runs share when it was the last."""
    fs.remove_quietly(directory)
    if directory.parent.name == ".tmp":
        with contextlib.suppress(OSError):  # others are in it
            fs.rmdir(directory.parent)
