"""`tuner rm`: an experiment set aside, or deleted for good, by its owner. A kill leaves it whole or gone.

It is one rename that takes it away: into `.removed/` beside it, where it is an experiment as before, under the first
name that is free there; or to be deleted, into a hidden name in there, which the next `tuner rm` ends to delete.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
from pathlib import Path

from trainables.store import fs
from trainables.store.manifest import MANIFEST_NAME
from trainables.transfer import transfer_jobs
from trainables.transfer.open import shown
from tuner.clock import Clock
from tuner.error import ExperimentNotFoundError, OwnedElsewhereError, SettingError
from tuner.experiment.generations import GenerationRecord
from tuner.experiment.hostile import UNREADABLE
from tuner.experiment.liveness import Liveness, last_driver
from tuner.experiment.lock import claim
from tuner.experiment.ownership import beating
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.processes import Processes
from tuner.experiment.reader import read_settings
from tuner.opening import temporary
from tuner.syncer import views
from tuner.syncer.claim import RemoteClaim, take_generation
from tuner.syncer.remote_experiment import JOURNAL, RemoteExperiment

REMOVED = ".removed"
_DELETING = ".deleting-"
_AT_ONCE = 200


def refuse_if_it_runs(paths: ExperimentPaths, clock: Clock) -> None:
    """Raise OwnedElsewhereError, which names the process, where a driver is at work. Nothing is waited for."""
    driver = last_driver(paths, clock.time())
    if driver.liveness is Liveness.RUNNING and driver.record is not None:
        owner = driver.record.owner
        raise OwnedElsewhereError(
            f"{paths.root} is running: pid {owner.pid} on {owner.host} is at work on it. Stop that first (Ctrl-C, or "
            f"kill {owner.pid}: it saves what it can)"
        )


def is_set_aside(paths: ExperimentPaths) -> bool:
    """Whether it was removed before."""
    return paths.root.parent.name == REMOVED


def remove(paths: ExperimentPaths, *, clock: Clock, now: bool) -> Path | None:
    """Take an experiment away; returns where it lies now, None when it is deleted.

    Args:
        now: delete it for good.

    Raises OwnedElsewhereError: a driver is at work on it; SettingError for a link to one. Nothing was touched then.
    """
    if paths.root.is_symlink():
        raise SettingError(f"{paths.root} is a link to {paths.root.resolve()}: name that, or remove the link")
    place = paths.root.parent if is_set_aside(paths) else paths.root.parent / REMOVED
    ownership = claim(paths, clock=clock, wait=clock.sleep)
    try:
        with beating(ownership):
            with contextlib.suppress(*UNREADABLE):
                temporary.remove_left(paths, read_settings(paths).get("id"))
            fs.make_dirs(place)
            target = place / f"{_DELETING}{secrets.token_hex(8)}" if now else _free(place, paths.root.name)
            fs.rename(paths.root, target)  # from this instant on it is gone from its place
            ownership.follow(ExperimentPaths(target))
            fs.fsync_dir(place)
            fs.fsync_dir(paths.root.parent)
    finally:
        ownership.release()
    for name in fs.listdir(place):
        if name.startswith(_DELETING):  # this one, and those that a kill left
            fs.rmtree(place / name)
    if not fs.listdir(place):
        fs.rmdir(place)
    return None if now else target


def _free(place: Path, name: str) -> Path:
    """NAME, or NAME.1 and so on where there was one of that name before."""
    names = itertools.chain([name], (f"{name}.{number}" for number in itertools.count(1)))
    return next(place / free for free in names if not fs.exists(place / free))


def remove_replica(uri: str, *, clock: Clock) -> int:
    """Delete what a place holds of an experiment, its description first; returns how many files that were.

    Done again after a kill it ends that. Raises OwnedElsewhereError: its driver is alive; ExperimentNotFoundError,
    SettingError for a place that cannot list or delete, TransferError.
    """
    with views.opened(uri) as remote:
        can = remote.uploader.can
        if not (can.list and can.delete):
            raise SettingError(f"{shown(uri)!r} is not accepted: what is there can only be removed by hand")
        if not any(key.split("/")[0] in JOURNAL for key in remote.keys):
            raise ExperimentNotFoundError(f"there is no experiment at {remote.uri}")
        _claim_replica(remote, clock)
        remote.look()
        keys = sorted(remote.keys, key=_last_needed)
        for start in range(0, len(keys), _AT_ONCE):
            some = [f"{remote.name}/{key}" for key in keys[start : start + _AT_ONCE]]
            remote.call(transfer_jobs.Delete(keys=some))
        return len(keys)


def _claim_replica(remote: RemoteExperiment, clock: Clock) -> None:
    """Wait until its last driver is known to be gone, and take its place, so that no other one starts meanwhile."""
    claims = RemoteClaim(remote, ExperimentPaths(Path("/nonexistent")), clock)
    owner = claims.free(claims.last_owner(), takeover=False)
    mine = GenerationRecord(owner.highest + 1, secrets.token_hex(16), Processes().me(), clock.time())
    if not take_generation(remote, mine):
        raise OwnedElsewhereError(f"{remote.uri} was claimed by another driver just now")


def _last_needed(key: str) -> tuple[int, str]:
    """Without its description it is no experiment, without manifests there are no checkpoints; who owns it, last."""
    if key == "experiment.json":
        return 0, key
    return (3 if key.startswith("generations/") else 1 if key.endswith(f"/{MANIFEST_NAME}") else 2), key
