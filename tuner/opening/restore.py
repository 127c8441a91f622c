"""`restore=` an experiment: it is continued under a new name, and what it was is not touched.

What describes it, its journal, its small files, and the checkpoints of one that lies here are laid out beside the new
name first, and get it in one step: a kill in between leaves nothing that looks like an experiment. Checkpoints that lie
elsewhere stay there (`origins`) where they can be copied from there to the new replica; else all are brought here.
"""

from __future__ import annotations

import datetime
import json
import os
import secrets
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from trainables.checkpoint import Checkpoint
from trainables.config import SyncConfig
from trainables.places import child_of, parent_and_name
from trainables.quick_dataclass import dataclass
from trainables.store import fs
from trainables.transfer import transfer_jobs
from trainables.transfer.client import ProcessClient, TransferClient
from trainables.transfer.open import check_scheme, shown
from tuner.addresses import is_address
from tuner.error import ExperimentNotFoundError, SettingError
from tuner.experiment.blobs import Blobs
from tuner.experiment.generations import decode_record, encode_record
from tuner.experiment.incoming import beside
from tuner.experiment.paths import ExperimentPaths, as_local_path, is_elsewhere, is_trial_file, parse_generation
from tuner.experiment.reader import is_experiment, load_state, read_settings
from tuner.opening.settings import Settings
from tuner.spec import Spec
from tuner.syncer.remote_experiment import RemoteExperiment, fetch_history
from tuner.syncer.views import is_experiment_at


@dataclass(frozen=True, slots=True)
class RemoteSource:
    """An experiment in a bucket, a shared directory or on a host."""

    config: SyncConfig
    name: str | None
    """None: the only one there is."""


RestoreSource = Path | RemoteSource
"""An experiment that is continued under another name."""


def experiment_to_restore(restore: Any) -> RestoreSource | None:
    """The experiment that `restore=` names; None: it names none (a checkpoint, or nothing)."""
    if isinstance(restore, SyncConfig):
        if restore.upload_dir is None:
            raise SettingError(f"restore={restore!r} names no place: it has no upload_dir")
        return RemoteSource(restore, None)
    if not isinstance(restore, (str, os.PathLike)) or isinstance(restore, Checkpoint):
        return None
    if is_elsewhere(restore):
        check_scheme(os.fspath(restore))
        place, name = parent_and_name(restore)
        if not name:
            raise SettingError(
                f"restore={shown(os.fspath(restore))!r} names no experiment; accepted: "
                '"scheme://bucket/path/experiment", "host:/path/experiment", a directory, or a SyncConfig'
            )
        if name.startswith("checkpoint_") or is_address(restore):
            return None
        return RemoteSource(SyncConfig(upload_dir=place), name)
    path = as_local_path(restore)
    return path if is_experiment(ExperimentPaths(path)) else None


def settled(spec: Spec, now: datetime.datetime) -> tuple[Settings, RestoreSource | None]:
    """The settings that hold before anything is opened, and the experiment that `restore=` continues, if it is one.

    Where copies go is needed before the replica is looked at: it is taken over from what is continued.
    """
    settings, source = Settings.of(spec), experiment_to_restore(spec.restore)
    if source is None:
        paths = ExperimentPaths(spec.storage / spec.name) if spec.name is not None else None
        if paths is None or not settings.is_stored("sync_config") or not is_experiment(paths):
            return settings, None
        return settings.with_stored_place(read_settings(paths), Blobs(paths.blobs).get), None
    if spec.overwrite:
        raise SettingError(
            f"overwrite=True is not accepted with restore={spec.restore!r}: that experiment is continued, and replaces "
            "nothing; give the run a name that is free"
        )
    settings = Settings(replace(spec, name=spec.named(now)), settings.origins)
    laid = ExperimentPaths(spec.storage / str(settings.spec.name))  # it may have been restored before
    known = laid if is_experiment(laid) else ExperimentPaths(source) if isinstance(source, Path) else None
    if known is None:
        return settings.continuing({}, source.config if isinstance(source, RemoteSource) else None), source
    description = read_settings(known)
    return settings.continuing(description, None).with_stored_place(description, Blobs(known.blobs).get), source


def stage(
    settings: Settings, source: RestoreSource, paths: ExperimentPaths, scratch: ExitStack
) -> tuple[ExperimentPaths, str]:
    """Lay the experiment out beside its new name; returns where, and the line that says so.

    Raises ExperimentNotFoundError, SettingError, TransferError.
    """
    incoming = scratch.enter_context(beside(paths.root, "inherited"))
    copies = _can_be_copied(settings.spec.sync_config, source)
    if isinstance(source, Path):
        told = str(source)
        _copy(ExperimentPaths(source), incoming)
    else:
        told = _fetch(source, incoming, here=not copies)
    there = told if is_elsewhere(told) else str(as_local_path(told))
    _rename(ExperimentPaths(incoming), paths.root.name, there if copies else None)
    return ExperimentPaths(incoming), f"continuing {told} as {paths.root}"


def place(staged: ExperimentPaths, paths: ExperimentPaths) -> bool:
    """Give it the new name; False: a start beside this one was faster."""
    _make_durable(staged.root)  # before it has the name: whoever finds it believes its manifests unread
    try:
        fs.rename(staged.root, paths.root)
    except OSError:
        if not is_experiment(paths):
            raise
        return False
    fs.fsync_dir(paths.root.parent)
    return True


def _can_be_copied(config: SyncConfig, source: RestoreSource) -> bool:
    """Whether the new experiment has a replica to which checkpoints can be copied from where they are."""
    if isinstance(source, Path) or config.upload_dir is None:
        return False
    its, own = source.config.place(), config.place()
    keys = [own[name] == its[name] for name in its if name not in ("place", "s3_extra_args")]
    return all(keys) and own["syncer"] == "auto" and shown(its["place"]) == its["place"]


def _copy(source: ExperimentPaths, target: Path) -> None:
    """Copy a local experiment: what its journal keeps, and no more."""
    state = load_state(source)
    for directory in (source.journal, source.history, source.blobs, source.generations):
        to = target / directory.relative_to(source.root)
        fs.make_dirs(to)
        for name in fs.listdir(directory) if fs.is_dir(directory) else ():
            if directory != source.generations:
                if not name.startswith(".") and directory / name != source.history:
                    fs.copy_file(directory / name, to / name)
            elif parse_generation(name) is not None:
                _release(directory / name, to / name)
    fs.copy_file(source.experiment_json, target / source.experiment_json.name)
    for trial in state.trials:
        if not fs.is_dir(trial.directory):
            continue
        fs.make_dirs(target / trial.dirname)
        for name in fs.listdir(trial.directory):
            if is_trial_file(name):
                fs.copy_file(trial.directory / name, target / trial.dirname / name)
        for kept in trial.checkpoints:
            if fs.is_dir(trial.directory / kept.ref.name):
                copy_tree(trial.directory / kept.ref.name, target / trial.dirname / kept.ref.name)


def _make_durable(directory: Path) -> None:
    """Sync all files and directories below, and itself."""
    for root, _, files in os.walk(directory, topdown=False):
        for name in files:
            fs.fsync_file(Path(root, name))
        fs.fsync_dir(root)


def _release(record: Path, target: Path) -> None:
    """Whoever owns the old experiment does not own the new one."""
    known = decode_record(fs.read_file(record), record)
    fs.replace_file(target, encode_record(known, released=True))


def copy_tree(source: Path, target: Path) -> None:
    """Copy a checkpoint, by reflinks where the filesystem can; its times stay, by which it is believed unread."""

    def copy(source: str, target: str) -> None:
        fs.copy_file(source, target)
        shutil.copystat(source, target)

    shutil.copytree(source, target, copy_function=copy)


def _fetch(source: RemoteSource, target: Path, *, here: bool) -> str:
    """Bring an experiment from another place, `here` with its checkpoints; returns its URI."""
    uploader: TransferClient = ProcessClient(source.config.place())
    try:
        timeout_s = source.config.sync_timeout
        name = source.name or _the_only_one(uploader, timeout_s)
        remote = RemoteExperiment(uploader, uploader.uri, name, timeout_s=timeout_s)
        if not remote.exists:
            raise ExperimentNotFoundError(f"restore: there is no experiment at {remote.uri}")
        paths = remote.fetch_journal(target)
        for record in fs.listdir(paths.generations):
            if parse_generation(record) is not None:
                _release(paths.generations / record, paths.generations / record)
        if uploader.can.list:
            remote.fetch_rest(target, have=lambda key: False)
            fetch_history(remote, target)
        trials = load_state(paths).trials
        for trial in trials:
            fs.make_dirs(trial.directory)
        if here:
            remote.fetch_checkpoints(trials)
        return remote.uri
    finally:
        uploader.close()


def _the_only_one(uploader: TransferClient, timeout_s: float) -> str:
    """The name of the one experiment under a place."""
    names = msgspec.json.decode(uploader.call(transfer_jobs.Children(prefix=""), timeout_s=timeout_s), type=list[str])
    found = [name.rstrip("/") for name in names if name.endswith("/") and is_experiment_at(uploader, name)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ExperimentNotFoundError(f"restore: there is no experiment under {uploader.uri}")
    raise SettingError(
        f"restore: there are {len(found)} experiments under {uploader.uri}: {', '.join(sorted(found)[:20])}; name one: "
        f"restore={child_of(uploader.uri, sorted(found)[0])!r}"
    )


def _rename(paths: ExperimentPaths, name: str, at: str | None) -> None:
    """It is another experiment from now on: its trials stay, their successors get ids of their own.

    `at`: the URI at which its checkpoints still are.
    """
    settings = json.loads(fs.read_file(paths.experiment_json))
    kept = (record for trial in load_state(paths).trials for record in trial.checkpoints)
    settings.update(
        name=name,
        id=secrets.token_hex(4),
        inherited_from=settings.get("name"),
        inherited_at=at,
        inherited_copies=sorted({place for record in kept for place in record.copies}),
    )
    fs.replace_file(paths.experiment_json, json.dumps(settings, indent=1).encode())
