"""`restore=` an experiment: it is continued under a new name, and what it was is not touched.

Books, small files and the checkpoints that unfinished trials go on from are laid aside first, and get the new name in
one step: a kill in between leaves nothing that looks like an experiment.
"""

from __future__ import annotations

import datetime
import json
import os
import secrets
import shutil
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any

import msgspec

from trainables.config import SyncConfig
from trainables.store import fs
from trainables.transfer import agent
from tuner.error import ExperimentNotFoundError, SettingError
from tuner.experiment.lock import Record, encode_record
from tuner.experiment.paths import ExperimentPaths, as_local_path, is_elsewhere, is_trial_file, parse_generation
from tuner.experiment.reader import is_experiment, load_state, read_settings
from tuner.experiment.resume import Base
from tuner.experiment.trial import Trial
from tuner.opening import STORED_SETTINGS
from tuner.spec import Spec
from tuner.syncer.remote import Remote
from tuner.syncer.uploader import ProcessUploader, Uploader

PLAIN = ("metric", "mode", "num_samples")
"""Settings that are inherited as experiment.json has them."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """An experiment in a bucket, a shared directory or on a host."""

    config: SyncConfig
    name: str | None
    """None: the only one there is."""


def experiment_to_restore(restore: Any) -> Path | Elsewhere | None:
    """The experiment that `restore=` names; None: it names none (a checkpoint, or nothing)."""
    if isinstance(restore, SyncConfig):
        if restore.upload_dir is None:
            raise SettingError(f"restore={restore!r} names no place: it has no upload_dir")
        return Elsewhere(restore, None)
    if not isinstance(restore, (str, os.PathLike)):
        return None
    if is_elsewhere(restore):
        place, _, name = os.fspath(restore).rstrip("/").rpartition("/")
        return None if name.startswith("checkpoint_") else Elsewhere(SyncConfig(upload_dir=place), name)
    path = as_local_path(restore)
    return path if is_experiment(ExperimentPaths(path)) else None


def inherit(spec: Spec, now: datetime.datetime) -> str | None:
    """Lay the experiment of `restore=` under the new name; returns the line that says so, None where there is none.

    `spec` then resumes it, and takes over what was not given anew. Raises SettingError, ExperimentNotFoundError or
    TransferError; nothing was touched then.
    """
    source = experiment_to_restore(spec.restore)
    if source is None:
        return None
    spec.name = spec.experiment_name(now)
    paths = ExperimentPaths(spec.storage / spec.name)
    if is_experiment(paths):
        if spec.resume_choice.base is not Base.NEW:  # else the name is taken: said as for any other run
            _take_settings(spec, read_settings(paths), None)
        return None  # it was inherited before, and continues
    if spec.resume_choice.base is not Base.NEW and _continues_elsewhere(spec, source):
        return None
    incoming = paths.root.parent / f".{spec.name}.inherited"
    if fs.exists(incoming):
        fs.rmtree(incoming)
    fs.make_dirs(incoming)
    try:
        if isinstance(source, Path):
            config, told = None, str(source)
            _copy(ExperimentPaths(source), incoming)
        else:
            config = source.config
            told = _fetch(source, incoming)
        _rename(ExperimentPaths(incoming), spec.name)
        fs.rename(incoming, paths.root)
        fs.fsync_dir(paths.root.parent)
    finally:
        if fs.exists(incoming):
            fs.rmtree(incoming)
    _take_settings(spec, read_settings(paths), config)
    spec.resume_choice = replace(spec.resume_choice, base=Base.LOCAL)
    return f"continuing {told} as {paths.root}"


def _continues_elsewhere(spec: Spec, source: Path | Elsewhere) -> bool:
    """Whether a replica has the new experiment already: this machine is another one, and the run goes on from there."""
    config = spec.sync_config
    if config.upload_dir is None and isinstance(source, Elsewhere):
        config = source.config
    if config.upload_dir is None or config.syncer is None:
        return False
    uploader: Uploader = ProcessUploader(config.place())
    try:
        remote = Remote(uploader, uploader.uri, str(spec.name), timeout_s=config.sync_timeout)
        if not remote.exists:
            return False
        _take_settings(spec, remote.settings(), config)
    finally:
        uploader.close()
    return True


def _copy(source: ExperimentPaths, target: Path) -> None:
    """Copy a local experiment: what its journal keeps, and no more."""
    state = load_state(source)
    for directory in (source.journal, source.blobs, source.generations):
        fs.make_dirs(target / directory.name)
        for name in fs.listdir(directory) if fs.is_dir(directory) else ():
            if directory != source.generations:
                if not name.startswith("."):
                    fs.copy_file(directory / name, target / directory.name / name)
            elif parse_generation(name) is not None:
                record = msgspec.json.decode(fs.read_file(directory / name), type=Record)
                fs.write_file(target / directory.name / name, encode_record(record, released=True), fsync=False)
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
                _copy_tree(trial.directory / kept.ref.name, target / trial.dirname / kept.ref.name)


def _copy_tree(source: Path, target: Path) -> None:
    """Copy a checkpoint, by reflinks where the filesystem can; its times stay, by which it is believed unread."""

    def copy(source: str, target: str) -> None:
        fs.copy_file(source, target)
        shutil.copystat(source, target)

    shutil.copytree(source, target, copy_function=copy)


def _fetch(source: Elsewhere, target: Path) -> str:
    """Bring an experiment from elsewhere, with the checkpoints that its unfinished trials go on from."""
    uploader: Uploader = ProcessUploader(source.config.place())
    try:
        timeout_s = source.config.sync_timeout
        name = source.name or _the_only_one(uploader, timeout_s)
        remote = Remote(uploader, uploader.uri, name, timeout_s=timeout_s)
        if not remote.exists:
            raise ExperimentNotFoundError(f"restore: there is no experiment at {remote.uri}")
        remote.fetch_books(target)
        if uploader.can.list:
            remote.fetch_rest(target, have=lambda key: False)
        there = remote.checkpoints()
        for trial in load_state(ExperimentPaths(target)).trials:
            fs.make_dirs(target / trial.dirname)
            for record in trial.checkpoints if trial.status != Trial.TERMINATED else ():
                if there.get(trial.dirname, {}).get(record.ref.name):
                    key = f"{name}/{trial.dirname}/{record.ref.name}"
                    place = str(target / trial.dirname / record.ref.name)
                    job = agent.FetchCheckpoint(key=key, target=place, digest=record.digest)
                    uploader.call(job, timeout_s=timeout_s)
        return remote.uri
    finally:
        uploader.close()


def _the_only_one(uploader: Uploader, timeout_s: float) -> str:
    """The name of the one experiment under a place."""
    names = msgspec.json.decode(uploader.call(agent.Children(prefix=""), timeout_s=timeout_s), type=list[str])
    found = [name.rstrip("/") for name in names if name.endswith("/") and _is_experiment(uploader, name, timeout_s)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ExperimentNotFoundError(f"restore: there is no experiment under {uploader.uri}")
    raise SettingError(
        f"restore: there are {len(found)} experiments under {uploader.uri}: {', '.join(sorted(found)[:20])}; name one: "
        f"restore={uploader.uri + '/' + sorted(found)[0]!r}"
    )


def _is_experiment(uploader: Uploader, name: str, timeout_s: float) -> bool:
    try:
        uploader.call(agent.Read(key=f"{name}experiment.json"), timeout_s=timeout_s)
    except FileNotFoundError:
        return False
    return True


def _rename(paths: ExperimentPaths, name: str) -> None:
    """It is another experiment from now on: its trials stay, their successors get ids of their own."""
    settings = json.loads(fs.read_file(paths.experiment_json))
    settings.update(name=name, id=secrets.token_hex(4), inherited_from=settings.get("name"))
    fs.replace_file(paths.experiment_json, json.dumps(settings, indent=1).encode())


def _take_settings(spec: Spec, settings: dict[str, Any], config: SyncConfig | None) -> None:
    """What was not given anew holds as it was."""
    default = {
        item.name: item.default if item.default_factory is MISSING else item.default_factory() for item in fields(spec)
    }
    given = {name for name in (*STORED_SETTINGS, *PLAIN) if getattr(spec, name) != default[name]}
    spec.stored = [name for name in STORED_SETTINGS if name not in given]
    for name in PLAIN:
        if name not in given and settings.get(name) is not None:
            setattr(spec, name, settings[name])
    if config is not None and "sync_config" not in given:
        spec.sync_config = config  # the place that it was found in, not the one it was once written to
        spec.stored.remove("sync_config")
    spec.space_given = bool(spec.param_space) or not settings.get("space")
    spec.restore = None
