"""`tuner sync`: a replica is brought into step without a run, or an experiment fetched from it.

A push is a driver's life in which no trial runs: it claims the next generation, here and there, and its facts are
those of the copies. So it is refused beside a live driver, and of two histories neither is ever lost.
"""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import Any

from trainables.config import SyncConfig
from trainables.places import child_of, parent_and_name
from trainables.store import fs
from trainables.transfer.open import shown
from tuner.clock import Clock, SystemClock
from tuner.error import ExperimentNotFoundError, SettingError, SyncError
from tuner.experiment import driver_log
from tuner.experiment import events as ev
from tuner.experiment.continuing import how_to_continue, starter_of
from tuner.experiment.lock import claim
from tuner.experiment.ownership import beating
from tuner.experiment.paths import ExperimentPaths, as_local_path, is_elsewhere
from tuner.experiment.reader import lies_at, load_state, read_settings
from tuner.experiment.state import ExperimentState
from tuner.progress.task_bar import TaskBar
from tuner.syncer import views
from tuner.syncer.adoption import adopt
from tuner.syncer.brief_owner import diverged, owned_briefly
from tuner.syncer.relation import Relation, relate
from tuner.syncer.remote_experiment import RemoteExperiment, fetch_history, fetch_log, generation_of


def copies_of(paths: ExperimentPaths, syncer: str | None = None, **how: Any) -> SyncConfig:
    """Where and how copies of an experiment were made, by its settings and its journal.

    Nothing that was read is unpickled or run: the command of a copy that a command made is given again.

    Args:
        syncer: that command.
        how: `delete_template` and `options` that go with it.

    Raises SettingError when nothing says so, several places are told of, or a function made them.
    """
    settings = read_settings(paths)
    command = settings.get("sync_command")
    if syncer is not None:
        if not command:
            raise SettingError(f"{paths.root} was not copied by a command: --syncer has nothing to say here")
        return SyncConfig(upload_dir=command["upload_dir"], syncer=syncer, **how)
    if settings.get("upload_dir"):
        return SyncConfig(upload_dir=settings["upload_dir"], s3_extra_args=settings.get("s3_extra_args"))
    if command and command["syncer"] is None:
        raise SettingError(
            f"{paths.root} was copied to {command['upload_dir']} by a function, a Syncer, or a command with a password "
            f"in it, which only a resume runs: {how_to_continue(paths.root, starter_of(paths, settings))} copies the "
            "rest; --to URI makes a copy elsewhere"
        )
    if command:
        options = {"--syncer": "syncer", "--delete-template": "delete_template", "--options": "options"}
        given = [f"{option} {shlex.quote(command[key])}" for option, key in options.items() if command.get(key)]
        raise SettingError(
            f"{paths.root} was copied to {command['upload_dir']} by a command. What stands in stored settings is not "
            f"run unasked; if you trust it, add: {' '.join(given)}"
        )
    trials = load_state(paths).trials
    places = sorted(
        {place for trial in trials for record in trial.checkpoints for place in record.copies}.difference(
            settings.get("inherited_copies", ())  # of the experiment that this one continues
        )
    )
    if len(places) == 1:
        return copy_at(paths, places[0])
    told = (
        f"there are several: {', '.join(places)}" if places else "nothing says where (a command or a function did it)"
    )
    raise SettingError(f"{paths.root}: which copy is meant? {told}; give --to URI, or resume the run")


def copy_at(paths: ExperimentPaths, uri: str) -> SyncConfig:
    """The copy of an experiment that has that address; it need not exist. Raises SettingError for another name."""
    place, name = parent_and_name(uri)
    if name != paths.root.name:
        raise SettingError(
            f"{shown(uri)!r} is not accepted: a copy has the name of its experiment, as in .../{paths.root.name} "
            "(`tuner cp` copies to another name)"
        )
    return SyncConfig(upload_dir=place)


def push(
    paths: ExperimentPaths,
    config: SyncConfig,
    *,
    inline: bool = False,
    clock: Clock | None = None,
    work: TaskBar | None = None,
) -> tuple[str, list[str]]:
    """Bring to a copy what it lacks; returns its address and lines about what is not here to be copied.

    Args:
        config: where it is, and what copies there.
        inline: do the work in this process.

    Raises OwnedElsewhereError beside a live driver, ExperimentDivergedError when the copy has facts that are not here,
    SyncError with what did not arrive, SettingError, TransferError.
    """
    if config.syncer == "auto":
        _check_apart(child_of(str(config.upload_dir), paths.root.name), paths)
    work = work or TaskBar("", "")
    with owned_briefly(paths, config, clock=clock or SystemClock(), inline=inline) as owner:
        replica, state = owner.replica, owner.state
        assert replica is not None
        uri = replica.place
        work.of(replica.backlog.checkpoints, replica.backlog.bytes)
        missing = owner.push(lambda fact: work.item(_bytes_of(fact, state)))
        if missing:
            shown = "".join(f"\n  {line}" for line in missing)
            why = f"\n  the last error: {replica.trouble}" if replica.trouble else ""
            raise SyncError(f"{len(missing)} things did not arrive at {uri}:{shown}{why}", missing=missing)
        return uri, [
            f"{trial.directory / record.ref.name} is not here, and not at {uri}"
            for trial in state.trials
            for record in trial.checkpoints
            if not fs.is_dir(trial.directory / record.ref.name) and not replica.holds(trial, record)
        ]


def _bytes_of(fact: ev.CheckpointCopied, state: ExperimentState) -> int:
    kept = state.trial(fact.ref.trial_id).checkpoints
    return sum(record.bytes for record in kept if record.ref == fact.ref)


def fetch(paths: ExperimentPaths, uri: str, *, clock: Clock | None = None, work: TaskBar | None = None) -> int:
    """Bring here all that the copy has: journal, small files, and every checkpoint that is kept; returns how many.

    Raises OwnedElsewhereError beside a live driver here, ExperimentNotFoundError when there is no copy,
    ExperimentDivergedError when each side has facts that the other lacks, SettingError, CheckpointError, TransferError.
    """
    _check_apart(uri, paths)
    with views.opened(uri) as remote, tempfile.TemporaryDirectory(prefix="journal-") as directory:
        if not remote.exists:
            raise ExperimentNotFoundError(f"there is no experiment at {remote.uri}")
        relation = relate(remote, paths, Path(directory) / "incoming")
        if relation is Relation.DIVERGED:
            raise diverged(remote, paths)
        highest = max(filter(None, map(generation_of, remote.keys)), default=0)
        ownership = claim(paths, clock=clock or SystemClock(), above=highest)
        try:
            with beating(ownership):
                return _bring_here(remote, paths, Path(directory) / "incoming", relation, work or TaskBar("", ""))
        finally:
            ownership.release()


def _bring_here(
    remote: RemoteExperiment, paths: ExperimentPaths, incoming: Path, relation: Relation, work: TaskBar
) -> int:
    if relation is Relation.NEWER:
        remote.fetch_rest(paths.root, have=lambda key: key.startswith("blobs/") and fs.exists(paths.root / key))
        fetch_log(remote, incoming)
        driver_log.merge(paths, ExperimentPaths(incoming))
        with lies_at(incoming, remote.uri):
            adopt(ExperimentPaths(incoming), paths)
    if remote.uploader.can.list:
        fetch_history(remote, paths.root)
    wanted = remote.to_fetch(load_state(paths).trials)
    work.of(len(wanted), sum(record.bytes for _, record in wanted))
    for trial, record in wanted:
        remote.fetch_checkpoint(trial, record)
        work.item(record.bytes)
    return len(wanted)


def _check_apart(uri: str, paths: ExperimentPaths) -> None:
    if not is_elsewhere(uri) and as_local_path(uri).resolve().is_relative_to(paths.root.resolve()):
        raise SettingError(f"{uri!r} is where the experiment itself lies: a copy needs another place")
