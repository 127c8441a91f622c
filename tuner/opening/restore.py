"""`restore=` an experiment: it is continued under a new name, and what it was is not touched.

Books and small files, and the checkpoints of one that lies here, are laid aside first, and get the new name in one
step: a kill in between leaves nothing that looks like an experiment. Checkpoints that lie elsewhere are copied from
there to the new replica before the first trial, within a bucket without a file here; a start that was killed in between
goes on with those that are missing. Where there is no such replica they are all brought here.
"""

from __future__ import annotations

import datetime
import json
import logging
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any

import msgspec

from trainables.config import SyncConfig
from trainables.errors import StoreMissingError
from trainables.places import parent_and_name
from trainables.store import fs
from trainables.transfer import transfer_jobs
from trainables.transfer.client import InlineClient, ProcessClient, TransferClient
from trainables.transfer.open import check_scheme, shown
from tuner.error import ExperimentExistsError, ExperimentNotFoundError, SettingError
from tuner.experiment.generations import decode_record, encode_record, read_records
from tuner.experiment.incoming import beside
from tuner.experiment.paths import ExperimentPaths, as_local_path, is_elsewhere, is_trial_file, parse_generation
from tuner.experiment.reader import is_experiment, load_state, read_settings
from tuner.experiment.resume import Base
from tuner.experiment.state import ExperimentState
from tuner.opening.fetch import Link
from tuner.opening.start import STORED_SETTINGS
from tuner.spec import Spec
from tuner.syncer.inventory import CheckpointOrigin
from tuner.syncer.remote_experiment import RemoteExperiment, complete
from tuner.syncer.views import is_experiment_at

log = logging.getLogger(__name__)

PLAIN = ("metric", "mode", "num_samples")
"""Settings that are inherited as experiment.json has them."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """What was laid under the new name."""

    note: str
    """The line that says so."""
    made: list[Path]
    """The directories that were not there before, the experiment's own first."""
    highest: int
    """The last generation that came with it."""


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
        check_scheme(os.fspath(restore))
        place, name = parent_and_name(restore)
        if not name:
            raise SettingError(
                f"restore={shown(os.fspath(restore))!r} names no experiment; accepted: "
                '"scheme://bucket/path/experiment", "host:/path/experiment", a directory, or a SyncConfig'
            )
        return None if name.startswith("checkpoint_") else Elsewhere(SyncConfig(upload_dir=place), name)
    path = as_local_path(restore)
    return path if is_experiment(ExperimentPaths(path)) else None


def inherit(spec: Spec, now: datetime.datetime) -> Inherited | None:
    """Lay the experiment of `restore=` under the new name; None: there is none, or it was laid there before.

    `spec` then resumes it, and takes over what was not given anew. Raises SettingError, ExperimentNotFoundError,
    ExperimentExistsError or TransferError; nothing was touched then.
    """
    source = experiment_to_restore(spec.restore)
    if source is None:
        return None
    if spec.overwrite:
        raise SettingError(
            f"overwrite=True is not accepted with restore={spec.restore!r}: that experiment is continued, and replaces "
            "nothing; give the run a name that is free"
        )
    spec.name = spec.experiment_name(now)
    paths = ExperimentPaths(spec.storage / spec.name)
    if is_experiment(paths):
        if spec.resume_choice.base is Base.NEW:
            raise _taken(str(paths.root))
        _take_settings(spec, read_settings(paths), None)
        return None  # it was inherited before, and continues
    if _continues_elsewhere(spec, source):
        return None
    made = [path for path in (paths.root, *paths.root.parents) if not fs.exists(path)]
    with beside(paths.root, "inherited") as incoming:
        if isinstance(source, Path):
            config, told = None, str(source)
            _copy(ExperimentPaths(source), incoming)
        else:
            config = source.config
            told = _fetch(source, incoming, here=not _goes_over_there(spec, source))
        there = told if is_elsewhere(told) else str(as_local_path(told))
        _rename(ExperimentPaths(incoming), spec.name, there if _goes_over_there(spec, source) else None)
        _make_durable(incoming)  # before it has the name: whoever finds it believes its manifests unread
        try:
            fs.rename(incoming, paths.root)
        except OSError:
            if not is_experiment(paths):
                raise
            if spec.resume_choice.base is Base.NEW:
                raise _taken(str(paths.root)) from None
            _take_settings(spec, read_settings(paths), None)
            return None  # a start beside this one was faster
        fs.fsync_dir(paths.root.parent)
    _take_settings(spec, read_settings(paths), config)
    spec.resume_choice = replace(spec.resume_choice, base=Base.LOCAL)
    highest = max((record.generation for record in read_records(paths)), default=0)
    return Inherited(f"continuing {told} as {paths.root}", made, highest)


def _taken(place: str) -> ExperimentExistsError:
    return ExperimentExistsError(
        f'there is an experiment at {place}: resume="AUTO" continues it, and restore= takes a name that is free'
    )


def _continues_elsewhere(spec: Spec, source: Path | Elsewhere) -> bool:
    """Whether a replica has the new experiment already: this machine is another one, and the run goes on from there.

    Raises ExperimentExistsError when nothing is to be resumed.
    """
    config = spec.sync_config
    if config.upload_dir is None and isinstance(source, Elsewhere):
        config = source.config
    if config.upload_dir is None or config.syncer is None:
        return False
    uploader: TransferClient = ProcessClient(config.place())
    try:
        remote = RemoteExperiment(uploader, uploader.uri, str(spec.name), timeout_s=config.sync_timeout)
        if not remote.exists:
            return False
        if spec.resume_choice.base is Base.NEW:
            raise _taken(remote.uri)
        _take_settings(spec, remote.settings(), config)
    finally:
        uploader.close()
    return True


def _goes_over_there(spec: Spec, source: Path | Elsewhere) -> bool:
    """Whether the new experiment has a replica to which checkpoints can be copied from where they are."""
    config = spec.sync_config
    if isinstance(source, Path):
        return False
    its = source.config.place()
    if config == SyncConfig():
        own = its  # it goes on in the place that it was found in
    elif config.upload_dir is not None:
        own = config.place()
    else:
        return False
    keys = [own[name] == its[name] for name in its if name != "place"]
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
                _copy_tree(trial.directory / kept.ref.name, target / trial.dirname / kept.ref.name)


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


def _copy_tree(source: Path, target: Path) -> None:
    """Copy a checkpoint, by reflinks where the filesystem can; its times stay, by which it is believed unread."""

    def copy(source: str, target: str) -> None:
        fs.copy_file(source, target)
        shutil.copystat(source, target)

    shutil.copytree(source, target, copy_function=copy)


def _fetch(source: Elsewhere, target: Path, *, here: bool) -> str:
    """Bring an experiment from elsewhere, `here` with its checkpoints; returns its URI."""
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
            remote.fetch_history(target)
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
        f"restore={uploader.uri + '/' + sorted(found)[0]!r}"
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


# --- checkpoints that stayed where they were ---------------------------------------------------------------


def find_origins(link: Link, settings: Mapping[str, Any], state: ExperimentState) -> None:
    """Look where the checkpoints of an inherited experiment are that neither this machine nor its replica has.

    Raises TransferError when that cannot be looked at just now.
    """
    link.origins = None
    if not settings.get("inherited_from") or link.remote is None or not link.uploader.can.list:
        return
    there = complete(link.remote.checkpoints())
    wanted: dict[str, list[tuple[str, str]]] = {}
    for trial in state.trials:
        for record in trial.checkpoints:
            name = record.ref.name
            if name in there.get(trial.dirname, ()) or fs.is_dir(trial.directory / name):
                continue
            uri = settings.get("inherited_at") or next(reversed(record.copies), link.remote.uri)
            wanted.setdefault(uri, []).append((trial.dirname, name))
    wanted.pop(link.remote.uri, None)
    for uri, names in wanted.items():
        place, experiment = parent_and_name(uri)
        whole = complete(_checkpoints_at(link, place, experiment))
        link.origins = link.origins or {}
        for dirname, name in names:
            if name in whole.get(dirname, ()):
                link.origins[dirname, name] = CheckpointOrigin(place, f"{experiment}/{dirname}/{name}")


def _checkpoints_at(link: Link, place: str, name: str) -> dict[str, dict[str, bool]]:
    timeout_s = link.config.sync_timeout
    if place == link.uploader.uri:
        return RemoteExperiment(link.uploader, place, name, timeout_s=timeout_s).checkpoints()
    try:
        uploader = InlineClient({**link.config.place(), "place": place}, check=False)
        try:
            return RemoteExperiment(uploader, place, name, timeout_s=timeout_s).checkpoints()
        finally:
            uploader.close()
    except StoreMissingError as error:
        log.warning("checkpoints that were inherited from %s/%s are not there any more: %s", place, name, error)
        return {}
