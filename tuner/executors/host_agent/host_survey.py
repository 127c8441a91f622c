"""What an agent does on the disk of its host before trials run there, and to single checkpoints."""

from __future__ import annotations

import contextlib
import json
import socket
import tempfile
from pathlib import Path

from trainables.errors import CheckpointCorruptError, CheckpointNotFoundError
from trainables.store import delete, fs, verify
from trainables.wire import CheckpointRef
from tuner.executors.host_agent.protocol import RESTORED, HostSurvey
from tuner.executors.remote_hosts import ExperimentPlace
from tuner.experiment.paths import ExperimentPaths


def survey(place: ExperimentPlace, busy: frozenset[str]) -> HostSurvey:
    """Say what lies here, and remove what killed saves and deletions left.

    Args:
        busy: directories of trials that run elsewhere just now, which this host may see.
    """
    root, name = place.root, socket.gethostname()
    try:
        shared = place.id in place.record.read_text()
    except OSError:
        shared = False
    try:
        fs.make_dirs(root)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        return HostSurvey(name, shared, problem=f"{root} cannot be written there: {error.strerror or error}")
    if shared:
        return HostSurvey(name, True)
    if (other := _experiment_at(root)) not in (None, place.experiment):
        return HostSurvey(name, False, problem=f"another experiment (id {other}) lies at {root} there")
    fs.remove_quietly(root / RESTORED)
    found: list[tuple[str, CheckpointRef, str]] = []
    for directory in sorted(root.iterdir()):
        if directory.is_dir() and not directory.name.startswith("."):
            if directory.name not in busy:
                remove_leftovers(directory)
                delete.finish_deletes(directory)
            found += [(directory.name, kept.ref, kept.digest) for kept in verify.list_checkpoints(directory)]
    return HostSurvey(name, False, found)


def check(path: Path, digest: str) -> str | None:
    """Hash a checkpoint; what is wrong with it, and "" where there is none."""
    if not fs.is_dir(path):
        return ""
    try:
        verify.check(path, digest=digest or None)
    except (CheckpointCorruptError, CheckpointNotFoundError) as error:  # another one says nothing of the checkpoint
        with contextlib.suppress(OSError):  # gone, or on a disk that takes nothing
            verify.quarantine(path)
        return str(error)
    return None


def remove_leftovers(directory: Path) -> None:
    """Remove what somebody was about to save in the directory of a trial, and did not."""
    for left in verify.leftovers(directory):
        fs.remove_quietly(left)


def _experiment_at(root: Path) -> str | None:
    """The id of the experiment whose driver wrote there."""
    try:
        return str(json.loads(ExperimentPaths(root).experiment_json.read_bytes())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
