"""`TUNE_EXISTING=aside`: an earlier experiment of the name gets another one, here and in its replica, by its owner.

Here that is one rename. Where there is a replica too, a marker in both places says what was begun: the replica goes
first (`tuner.syncer.moving`), then what is here, then what is left under the old name. A start that finds a
marker whose owner is dead ends the move where the replica has the new name already, and takes it back where it has not.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from trainables.errors import TransferError
from trainables.places import child_of
from trainables.store import fs
from trainables.transfer import transfer_jobs
from tuner.analysis.loaded import moved
from tuner.clock import Clock
from tuner.experiment.continuing import resume_words
from tuner.experiment.incoming import beside
from tuner.experiment.lock import claim
from tuner.experiment.naming import aside_name
from tuner.experiment.ownership import Ownership, beating
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import read_settings
from tuner.opening import temporary
from tuner.opening.reach import ReplicaConnection
from tuner.opening.survey import LocalStanding, StartStanding
from tuner.spec import Spec
from tuner.syncer.claim import RemoteClaim, take_generation
from tuner.syncer.moving import MARKER, MoveIntent, RemoteMove, intent_at
from tuner.syncer.remote_experiment import RemoteExperiment, generation_of

log = logging.getLogger(__name__)

TOLD_FROM = 1000
"""From so many files on their copying in a bucket is spoken of: it takes about ten milliseconds for each."""

_moved: list[tuple[Path, Path]] = []
"""What this process has moved, and where to."""


def followed(path: Path) -> Path:
    """Where what was at `path` lies now, if it was moved with its experiment."""
    for source, target in reversed(_moved):
        if not fs.exists(path) and path.is_relative_to(source):
            return target / path.relative_to(source)
    return path


def move(
    spec: Spec,
    paths: ExperimentPaths,
    standing: StartStanding,
    connection: ReplicaConnection | None,
    *,
    clock: Clock,
    say: Callable[[str], None],
) -> None:
    """Give the experiment the next free name; where another driver was faster nothing is done, and it shows.

    Raises OwnedElsewhereError: it has a living owner; TransferError. Nothing was moved then.
    """
    local, remote = standing.local, standing.remote
    there = remote.remote if remote is not None and remote.exists else None
    with _claimed(spec, paths, local, remote.remote if remote is not None else None, clock) as ownership:
        if ownership is None:
            return
        target = paths.root.with_name(_free_name(paths, connection))
        if there is None:
            _rename(paths, target, local, ownership, None)
            fs.remove_quietly(ExperimentPaths(target).moving_aside)  # of a move that nobody here can end
        else:
            assert connection is not None and remote is not None
            description = local.description or there.settings()
            intent = MoveIntent(target.name, str(description.get("id")))
            limit_s = connection.config.sync_timeout
            moving = RemoteMove(there, intent, ownership.record, clock=clock, timeout_s=limit_s)
            if local.exists:
                fs.write_file(paths.moving_aside, intent.encode(), fsync=True)
                fs.fsync_dir(paths.root)
            if not connection.uploader.can.rename and len(there.keys) >= TOLD_FROM:
                say(
                    f"copying {len(there.keys)} files of the earlier experiment to "
                    f"{child_of(there.place, target.name)}, first"
                )
            with _taken_back(moving, paths):
                moving.carry_out()
            _rename(paths, target, local, ownership, there)
            moving.clean_up()
            fs.remove_quietly(ExperimentPaths(target).moving_aside)
        temporary.remove_left(paths, local.description.get("id"))
    places = [str(target)] if local.exists else []
    places += [child_of(there.place, target.name)] if there is not None else []
    say(
        f"the earlier experiment {paths.root.name!r} was moved aside: it is at {' and '.join(places)} now, and a new "
        f"one starts; TUNE_EXISTING=resume, or {resume_words(paths.root, spec.started_by)}, continues an experiment of "
        "that name instead"
    )


def interrupted(paths: ExperimentPaths, standing: StartStanding) -> bool:
    """True where a move was begun and not ended: its owner is at work, or was killed."""
    remote = standing.remote.remote if standing.remote is not None else None
    return remote is not None and (fs.exists(paths.moving_aside) or MARKER in remote.keys)


def recover(
    spec: Spec, paths: ExperimentPaths, standing: StartStanding, connection: ReplicaConnection, clock: Clock
) -> None:
    """End a move whose owner was killed, or take it back. Raises OwnedElsewhereError: it is at work."""
    remote = standing.remote.remote if standing.remote is not None else None
    assert remote is not None
    here = MoveIntent.decode(fs.read_file(paths.moving_aside)) if fs.exists(paths.moving_aside) else None
    intent = here or intent_at(remote)
    if intent is None or intent.to == paths.root.name:
        _forget(paths, remote)
        return
    owner = RemoteClaim(remote, paths, clock)
    owner.free(owner.last_owner(), takeover=spec.takeover)
    with _claimed(spec, paths, standing.local, remote, clock) as ownership:
        if ownership is None:
            return
        limit_s = connection.config.sync_timeout
        moving = RemoteMove(remote, intent, ownership.record, clock=clock, timeout_s=limit_s)
        target = paths.root.with_name(intent.to)
        if moving.is_done():
            if here is not None:
                _rename(paths, target, standing.local, ownership, remote)
            moving.clean_up()
            fs.remove_quietly(ExperimentPaths(target).moving_aside)
            log.warning("%s: it was being moved to %s by a start that was killed: it is there now", remote.uri, target)
        else:
            moving.take_back()
            fs.remove_quietly(paths.moving_aside)


@contextmanager
def _claimed(
    spec: Spec, paths: ExperimentPaths, local: LocalStanding, remote: RemoteExperiment | None, clock: Clock
) -> Iterator[Ownership | None]:
    """The experiment, claimed here and in its replica under one number. None: another driver was faster."""
    with ExitStack() as ends:
        here = paths if local.exists else ExperimentPaths(ends.enter_context(beside(paths.root, "moving")))
        keys = [] if remote is None else remote.keys  # as it was looked at: who was faster has them elsewhere now
        above = max(filter(None, map(generation_of, keys)), default=0)
        try:
            ownership = claim(here, takeover=spec.takeover, above=above, clock=clock, wait=clock.sleep)
        except FileNotFoundError:  # it went while it was being claimed
            yield None
            return
        ends.callback(ownership.release)
        if local.exists and ownership.parent_id != local.last:
            yield None
        elif remote is not None and remote.keys and not take_generation(remote, ownership.record):
            yield None
        else:
            with beating(ownership):
                yield ownership


@contextmanager
def _taken_back(moving: RemoteMove, paths: ExperimentPaths) -> Iterator[None]:
    """Take the move back where it fails, as far as the place lets us: else the next start does."""
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(TransferError):
            if not moving.is_done():
                moving.take_back()
                fs.remove_quietly(paths.moving_aside)
                error.add_note(f"nothing was moved: the experiment is at {paths.root} as before")
        raise


def _rename(
    paths: ExperimentPaths, target: Path, local: LocalStanding, ownership: Ownership, remote: RemoteExperiment | None
) -> None:
    """Give what is here its new name; `remote`: its replica, which has it."""
    if not local.exists:
        return
    fs.rename(paths.root, target)  # from this instant on it has the new name here
    ownership.follow(ExperimentPaths(target))
    fs.fsync_dir(target.parent)
    copies = None if remote is None else (remote.uri, child_of(remote.place, target.name))
    _describe(ExperimentPaths(target), paths.root.name, copies)
    _moved.append((paths.root, target))
    moved(paths.root, target, copies)


def _describe(paths: ExperimentPaths, before: str, copies: tuple[str, str] | None) -> None:
    """Write down its name and the one before, and where the copies are that the journal says are elsewhere."""
    settings = read_settings(paths)
    settings["name"], settings["moved_from"] = paths.root.name, before
    if copies is not None:
        settings["moved"] = [*(settings.get("moved") or ()), copies]
    fs.replace_file(paths.experiment_json, json.dumps(settings, indent=1).encode())


def _forget(paths: ExperimentPaths, remote: RemoteExperiment) -> None:
    """Remove markers of a move that has ended: the experiment has the name already to which it was on its way."""
    if MARKER in remote.keys:
        remote.call(transfer_jobs.Delete(keys=[f"{remote.name}/{MARKER}"]))
    fs.remove_quietly(paths.moving_aside)


def _free_name(paths: ExperimentPaths, connection: ReplicaConnection | None) -> str:
    """NAME.1, or the next number that is free here and in the replica."""
    root, taken = paths.root, set[str]()
    if connection is not None and connection.uploader.can.list:
        listed = connection.uploader.call(transfer_jobs.Children(prefix=""), timeout_s=connection.config.sync_timeout)
        taken = {name.rstrip("/") for name in msgspec.json.decode(listed, type=list[str])}
    number = 1
    while True:
        name = aside_name(root.name, number)
        here = root.with_name(name)
        if name not in taken and not (fs.exists(here) and (not fs.is_dir(here) or fs.listdir(here))):
            return name
        number += 1
