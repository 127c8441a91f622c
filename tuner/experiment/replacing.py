"""Replacing an experiment: the old one lies aside, whole, until the first trial of the new one has started.

The directory's generations stay where they are, for they say who owns it. All else moves into a hidden directory beside
them, whose name says how far that came:

    .moving    a part of the old experiment; the rest lies where it always did. Nothing of the new one is there yet, or
               nothing is any more.
    .replaced  all of the old experiment; around it lies the new one, of which no trial has started.
    .removed-  what nobody wants any more.

So a kill at any instant leaves one rule for the next owner (`put_back`): what is in `.moving` or `.replaced` is the
experiment. The rename of `.replaced` to `.removed-` is the instant from which on the new one is.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from trainables.store import fs
from tuner.experiment.paths import ExperimentPaths, TrialPaths

_REMOVED = ".removed-"


def move_aside(paths: ExperimentPaths) -> None:
    """Make room for a new experiment. For the owner only."""
    moving = paths.moving
    fs.make_dirs(moving)
    for name in _names(paths):
        if name != paths.experiment_json.name:
            fs.rename(paths.root / name, moving / name)
    fs.rename(paths.experiment_json, moving / paths.experiment_json.name)  # last: what it describes is there no more
    fs.fsync_dir(paths.root)
    fs.fsync_dir(moving)
    fs.rename(moving, paths.replaced)
    fs.fsync_dir(paths.root)  # before the new one writes anything: from here on what lies around it is the new one's


def put_back(paths: ExperimentPaths) -> bool:
    """Bring back an experiment that was moved aside, and remove what was begun instead; False if there is none.

    For the owner only. Done again after a kill at any instant, it ends what was begun.
    """
    moving = paths.moving
    if fs.is_dir(paths.replaced):
        for name in _names(paths):
            _remove(paths.root / name)
        fs.fsync_dir(paths.root)
        fs.rename(paths.replaced, moving)
        fs.fsync_dir(paths.root)  # before anything moves: else it would be taken for the new one's, and removed
    elif not fs.is_dir(moving):
        return False
    for name in fs.listdir(moving):
        fs.rename(moving / name, paths.root / name)
    fs.fsync_dir(paths.root)
    fs.rmdir(moving)
    fs.fsync_dir(paths.root)
    return True


def give_up(paths: ExperimentPaths) -> Path | None:
    """From here on the new experiment is the one. Returns what is left of the old one, to be removed."""
    if not fs.is_dir(paths.replaced):
        return None
    removed = paths.root / f"{_REMOVED}{secrets.token_hex(4)}"
    fs.rename(paths.replaced, removed)
    fs.fsync_dir(paths.root)
    return removed


def remove_begun(paths: ExperimentPaths) -> None:
    """Remove an experiment of which no trial has started, and that replaces none. For the owner only."""
    logs = (log.name for log in paths.driver_logs)
    ours = (paths.experiment_json.name, paths.journal.name, paths.blobs.name, *logs)
    for name in _names(paths):
        if name in ours or fs.exists(TrialPaths(paths.root / name).trial_json):
            _remove(paths.root / name)


def remove_given_up(paths: ExperimentPaths) -> None:
    """Remove what a killed owner had no time to."""
    for name in fs.listdir(paths.root):
        if name.startswith(_REMOVED):
            fs.rmtree(paths.root / name)


def standing(paths: ExperimentPaths) -> ExperimentPaths:
    """Where the experiment lies that readers believe in: aside, while another is about to replace it."""
    return ExperimentPaths(paths.replaced) if fs.is_dir(paths.replaced) else paths


def interrupted(paths: ExperimentPaths) -> bool:
    """True while an experiment lies aside: its owner is at work, or was killed."""
    return fs.is_dir(paths.replaced) or fs.is_dir(paths.moving)


def _names(paths: ExperimentPaths) -> list[str]:
    """What belongs to the experiment that lies there, but for the generations."""
    aside = (paths.generations.name, paths.replaced.name, paths.moving.name)
    return [name for name in fs.listdir(paths.root) if name not in aside and not name.startswith(_REMOVED)]


def _remove(path: Path) -> None:
    if fs.is_dir(path):
        fs.rmtree(path)
    else:
        fs.unlink(path)
