"""What stands at a start, on this machine and in the replica: looked at, and not touched."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from trainables.errors import TransferError
from trainables.places import kernels_filesystem
from trainables.quick_dataclass import dataclass
from trainables.store import fs
from tuner.clock import Clock
from tuner.error import ExperimentDamagedError, SettingError, StorageError, StorageFullError, TuneError
from tuner.experiment import formats
from tuner.experiment.existing import Existing
from tuner.experiment.generations import read_records
from tuner.experiment.incoming import beside
from tuner.experiment.leftovers import trials_with_results
from tuner.experiment.liveness import Liveness, last_driver
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import is_experiment, lies_at, load_state, read_settings
from tuner.experiment.resume import Base
from tuner.opening.reach import ReplicaConnection
from tuner.opening.settings import Settings
from tuner.spec import Spec
from tuner.syncer.claim import RemoteClaim
from tuner.syncer.moving import can_move
from tuner.syncer.relation import Relation, relate
from tuner.syncer.remote_experiment import REPLACED, RemoteExperiment, complete


@dataclass(frozen=True, slots=True)
class LocalStanding:
    """What lies under the experiment's name on this machine."""

    root: Path
    exists: bool = False
    description: Mapping[str, Any] = field(default_factory=dict)
    """What its experiment.json says."""
    told: bool = True
    """One of its trials had a result; looked at only where an experiment that never had one is replaced."""
    foreign: Sequence[str] = ()
    """Files that are not ours, where there is no experiment."""
    others: Sequence[str] = ()
    """Experiments beside it, where there is none but one has to be."""
    missing: Sequence[Path] = ()
    """The directories that are not there, its own first."""
    last: str | None = None
    """The id of its newest generation."""
    driver: str = ""
    """The driver that runs it, where one is seen to live; looked at only where the experiment stands in the way."""


@dataclass(frozen=True, slots=True)
class RemoteStanding:
    """What the replica has under that name."""

    uri: str
    relation: Relation = Relation.ABSENT
    """How its history stands to the one here; NEWER too where it is not compared."""
    told: bool = True
    """As of what is here."""
    orphans: bool = False
    """Complete checkpoints lie there, and no experiment."""
    can_move: bool = True
    """It can be given another name there."""
    has_journal: bool = True
    description: Mapping[str, Any] = field(default_factory=dict)
    """What its experiment.json says, where its history is not a part of the one here."""
    highest: int = 0
    """The highest generation that it knows."""
    void: Sequence[str] = ()
    """Keys of an experiment that was replaced, and of which a killed driver had not removed all."""
    remote: RemoteExperiment | None = None
    fetched: ExperimentPaths | None = None
    """Where its description, generations and journal were brought, in a directory that goes at the end of the start."""

    @property
    def exists(self) -> bool:
        return self.relation is not Relation.ABSENT


@dataclass(frozen=True, slots=True)
class StartStanding:
    """What stands at a start."""

    local: LocalStanding
    remote: RemoteStanding | None = None
    """None: no copies are made."""
    restores: bool = False
    """`restore=` names an experiment that is continued under this name."""


def survey(
    settings: Settings,
    paths: ExperimentPaths,
    connection: ReplicaConnection | None,
    *,
    restores: bool,
    clock: Clock,
    scratch: ExitStack,
) -> StartStanding:
    """Look at both places; of a replica that may be used the owner is waited for.

    `scratch` removes what was fetched to be looked at. Raises SettingError and ExperimentDamagedError for a place that
    cannot be used, OwnedElsewhereError, TransferError.
    """
    with usable(settings.spec, paths):
        local = survey_local(settings.spec, paths)
    if local.exists and local.told and settings.spec.resume_choice.base is Base.NEW:
        seen = last_driver(paths, clock.time())
        local = replace(local, driver=str(seen) if seen.liveness is Liveness.RUNNING else "")
    if connection is None:
        return StartStanding(local, None, restores)
    remote = connection.remote(paths.root.name)
    claim = RemoteClaim(remote, paths, clock)
    return StartStanding(local, _survey_remote(settings.spec, local, remote, claim, scratch), restores)


def survey_local(spec: Spec, paths: ExperimentPaths) -> LocalStanding:
    """What is here. Raises SettingError, ExperimentDamagedError, NewerFormatError."""
    root, base = paths.root, spec.resume_choice.base
    missing = [path for path in (root, *root.parents) if not fs.exists(path)]
    names = os.listdir(root) if root.is_dir() else ()  # before the question below: another may make the experiment now
    if is_experiment(paths):
        description = read_settings(paths)
        formats.check_books(paths)
        asked = base is Base.NEW and not spec.overwrite and spec.name is not None
        told = not asked or any(trial.told for trial in load_state(paths).trials) or any(trials_with_results(paths))
        return LocalStanding(root, True, description, told, last=_last(paths))
    _check_place(spec, root)
    foreign = sorted(name for name in names if not _ours(name))
    beside_it = root.parent.iterdir() if base in (Base.LOCAL, Base.REMOTE) and root.parent.is_dir() else ()
    others = sorted(entry.name for entry in beside_it if is_experiment(ExperimentPaths(entry))) if beside_it else ()
    return LocalStanding(root, foreign=foreign, others=others, missing=missing, last=_last(paths))


def _last(paths: ExperimentPaths) -> str | None:
    """The id of the newest generation there is."""
    return records[-1].id if (records := read_records(paths)) else None


def _check_place(spec: Spec, root: Path) -> None:
    """Refuse a place at which no experiment can be made."""
    place = next(parent for parent in root.parents if parent.exists())
    if not place.is_dir():
        raise SettingError(f"{_storage_setting(spec)} is not accepted: {place} is a file, no directory")
    if kind := kernels_filesystem(root):
        raise SettingError(
            f"{_storage_setting(spec)} is not accepted: {kind} is the kernel's own filesystem, and keeps no files; "
            "give a directory on a disk"
        )
    if root.exists() and not root.is_dir():
        raise ExperimentDamagedError(f"{root} is a file, not a directory; choose another name or storage_path")


@contextlib.contextmanager
def usable(spec: Spec, paths: ExperimentPaths) -> Iterator[None]:
    """What the system says of the place where the experiment is to lie becomes an error that names the setting."""
    try:
        yield
    except OSError as error:
        if isinstance(error, (TuneError, TransferError)) or error.errno is None:
            raise  # not this system's word
        cause = error.strerror
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = fs.free_bytes(paths.root)
            raise StorageFullError(f"cannot write to {paths.root}: {cause}; {free} bytes free") from error
        raise StorageError(
            f"{_storage_setting(spec)} cannot hold {paths.root.name}: {cause}: {error.filename or str(paths.root)!r}; "
            "give a directory in which this user may make directories and files"
        ) from error


def _storage_setting(spec: Spec) -> str:
    """The setting as it was given."""
    return f"storage_path={str(spec.storage if spec.storage_path is None else spec.storage_path)!r}"


def _ours(name: str) -> bool:
    return name in ("generations", "journal", "blobs", "orders", "driver.log", "driver.log.1") or name.startswith(".")


def _survey_remote(
    spec: Spec, local: LocalStanding, remote: RemoteExperiment, claim: RemoteClaim, scratch: ExitStack
) -> RemoteStanding:
    """What the replica has; its owner is waited for where it may be used."""
    base = spec.resume_choice.base
    replaces = spec.overwrite or base is Base.NEW
    useless = base is Base.LOCAL and not local.exists  # there is nothing here to resume
    head, told, half_gone = claim.last_owner(), True, REPLACED in remote.keys and not remote.exists
    if base is Base.NEW and not spec.overwrite and remote.exists:
        told = _ever_told(remote, local.root)
        useless = told and spec.rerun.existing is not Existing.ASIDE
    if (remote.exists or half_gone) and not useless:
        head = claim.free(head, takeover=spec.takeover)
    if not remote.exists:
        orphans = not half_gone and any(complete(remote.checkpoints()).values())
        void = [key for key in remote.keys if not key.startswith("generations/")] if half_gone else ()
        remote.leave_out(void)
        return RemoteStanding(remote.uri, orphans=orphans, highest=head.highest, void=void, remote=remote)
    if replaces or useless:
        movable = can_move(remote.uploader.can)
        return RemoteStanding(remote.uri, Relation.NEWER, told, can_move=movable, highest=head.highest, remote=remote)
    fetched = ExperimentPaths(scratch.enter_context(beside(local.root, "incoming")))
    relation = relate(remote, ExperimentPaths(local.root), fetched.root)
    if relation not in (Relation.NEWER, Relation.DIVERGED):
        return RemoteStanding(remote.uri, relation, highest=head.highest, remote=remote)
    with lies_at(fetched.root, remote.uri):
        description = read_settings(fetched)
    return RemoteStanding(
        remote.uri,
        relation,
        has_journal=not remote.uploader.can.list or any(key.startswith("journal/") for key in remote.keys),
        description=description,
        highest=head.highest,
        remote=remote,
        fetched=fetched,
    )


def _ever_told(remote: RemoteExperiment, root: Path) -> bool:
    """Whether the experiment there had a result; one that never had is replaced."""
    with beside(root, "incoming") as incoming, lies_at(incoming, remote.uri):
        return any(trial.told for trial in load_state(remote.fetch_journal(incoming)).trials)
