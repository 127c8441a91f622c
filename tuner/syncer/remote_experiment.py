"""An experiment as it is in a replica, or elsewhere: listed, read, and fetched to a local directory."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from trainables.errors import CheckpointCorruptError, CheckpointError, ObjectNotFoundError
from trainables.places import child_of
from trainables.store import fs, manifest, verify
from trainables.store.manifest import MANIFEST_NAME, Published
from trainables.transfer import transfer_jobs
from trainables.transfer.client import TransferClient
from trainables.wire import CheckpointRef
from tuner.error import ExperimentDamagedError
from tuner.experiment import formats
from tuner.experiment.paths import ExperimentPaths, is_history, is_trial_file, parse_checkpoint, parse_generation
from tuner.experiment.trial import Trial
from tuner.experiment.trial_records import CheckpointRecord
from tuner.syncer.adoption import blobs_named

log = logging.getLogger(__name__)

REPLACED = ".replaced"
"""A file of that name beside no experiment.json: what else is there is of an experiment that was replaced."""
JOURNAL = ("experiment.json", "generations", "journal")
"""What says of an experiment what became of it."""
READ_AGAIN = 3
"""Compaction may remove a segment between the look and the fetch: so often is looked again."""


class RemoteExperiment:
    """One experiment in one place.

    Args:
        place: how messages call the place, without credentials.
        timeout_s: without progress, after which an operation is given up.
    """

    def __init__(self, uploader: TransferClient, place: str, name: str, *, timeout_s: float) -> None:
        self.uploader, self.place, self.name = uploader, place, name
        self._timeout_s = timeout_s
        self._keys: list[str] = []
        self._sizes: dict[str, int] = {}
        self._index: dict[str, dict[str, list[str]]] | None = None
        """Trial directory -> name of a checkpoint -> its keys; None: not looked for yet."""
        self._published: dict[str, Published | None] = {}
        self.partials: dict[str, list[str]] = {}
        """Trial directory -> names of checkpoints there without a manifest, of a place that cannot list."""
        self.look()

    @property
    def uri(self) -> str:
        return child_of(self.place, self.name)

    @property
    def keys(self) -> list[str]:
        """Everything that the experiment has there, relative to it."""
        return self._keys

    @keys.setter
    def keys(self, keys: list[str]) -> None:
        self._keys, self._index = keys, None

    @property
    def sizes(self) -> Mapping[str, int]:
        """In bytes, of everything that was listed."""
        return self._sizes

    def leave_out(self, keys: Collection[str]) -> None:
        """These are void, and count as not there."""
        left_out = set(keys)
        self.keys = [key for key in self._keys if key not in left_out]

    def look(self) -> None:
        if not self.uploader.can.list:
            return
        data = self.call(transfer_jobs.ListKeys(prefix=self.name))
        found = msgspec.json.decode(data, type=dict[str, int])
        self._sizes = {key.removeprefix(f"{self.name}/"): size for key, size in found.items()}
        self.keys = list(self._sizes)

    @property
    def exists(self) -> bool:
        if self.uploader.can.list:
            return "experiment.json" in self.keys
        try:
            self.read("experiment.json")
        except ObjectNotFoundError:
            return False
        return True

    def settings(self) -> dict[str, Any]:
        """Its experiment.json. Raises ExperimentDamagedError, NewerFormatError."""
        try:
            loaded: dict[str, Any] = json.loads(self.read("experiment.json"))
            version = int(loaded["format"])
        except (ValueError, KeyError, TypeError) as error:
            raise ExperimentDamagedError(f"{child_of(self.uri, 'experiment.json')} cannot be read: {error}") from error
        formats.check(version, child_of(self.uri, "experiment.json"))
        return loaded

    def checkpoints(self) -> dict[str, dict[str, bool]]:
        """Trial directory -> name of a checkpoint -> whether it is complete."""
        return {dirname: self._checkpoints_of(dirname) for dirname in self._indexed()}

    def _checkpoints_of(self, dirname: str) -> dict[str, bool]:
        found = self._indexed().get(dirname, {})
        return {name: f"{dirname}/{name}/{MANIFEST_NAME}" in keys for name, keys in found.items()}

    def _indexed(self) -> dict[str, dict[str, list[str]]]:
        if self._index is None:  # once for all trials
            self._index = {}
            for key in self._keys:
                parts = key.split("/")
                if len(parts) > 2 and parse_checkpoint(parts[1]) is not None:
                    self._index.setdefault(parts[0], {}).setdefault(parts[1], []).append(key)
        return self._index

    def lacking(self, trial: Trial, name: str) -> list[str]:
        """Files of a local checkpoint that the replica lacks, by names and sizes."""
        there = set(self._indexed().get(trial.dirname, {}).get(name, ()))
        try:
            files = manifest.read(trial.directory / name).manifest.files
        except CheckpointError:
            return []  # it is not here, or nothing to go by
        prefix = f"{trial.dirname}/{name}"
        keys = {file.name: f"{prefix}/{file.name}" for file in files}
        return [
            file.name for file in files if keys[file.name] not in there or self._sizes[keys[file.name]] != file.size
        ]

    def not_kept(
        self, trial: Trial, *, void: bool = False, given_up: bool = False
    ) -> list[tuple[CheckpointRef, Published | None]]:
        """What is there of checkpoints that `trial` does not have any more; of complete ones with their manifest.

        A complete one that does not belong to its own lineage is left out, unless it was said to be void: it may be the
        only copy of something. So is one whose manifest is another's, or cannot be read. With `given_up` those of a
        life before the trial started anew, or became a clone, are in too: nothing uses them again.
        """
        kept, lineage = {record.ref.name for record in trial.checkpoints}, set(trial.lineage)
        first = trial.lineage[0] if trial.lineage else (trial.attempt_generation, trial.attempt + 1)
        found: list[tuple[CheckpointRef, Published | None]] = []
        there = self._checkpoints_of(trial.dirname)
        for number, name in enumerate(sorted(set(there) - kept), start=1):
            saved_by = parse_checkpoint(name)
            assert saved_by is not None
            ref = CheckpointRef(trial.trial_id, name, *saved_by, -number, 0)
            if not there[name]:
                if not _is_users(trial.directory / name):
                    found.append((ref, None))
            elif void or saved_by in lineage or (given_up and saved_by < first):
                whole = self._manifest(trial, name)
                # A void one may stand where one of our own history stands: it is older than all of those.
                found += [(ref if void else whole.ref, whole)] if whole is not None else []
        return found

    def others_of(self, trial: Trial) -> list[str]:
        """Keys of remote checkpoints that are called as a local one of `trial` and are not it; manifests first."""
        here = {record.ref.name: record.digest for record in trial.checkpoints}
        here |= {found.path.name: found.digest for found in verify.list_checkpoints(trial.directory)}
        keys = []
        for name, whole in self._checkpoints_of(trial.dirname).items():
            if whole and name in here:
                if manifest.digest(self.read(f"{trial.dirname}/{name}/{MANIFEST_NAME}")) != here[name]:
                    keys += self._indexed()[trial.dirname][name]
        return sorted(keys, key=lambda key: not key.endswith(f"/{MANIFEST_NAME}"))

    def _manifest(self, trial: Trial, name: str) -> Published | None:
        """None: it cannot be read, or is another checkpoint's."""
        key = f"{trial.dirname}/{name}"
        if key not in self._published:
            path = trial.directory / name
            try:
                data = self.read(f"{key}/{MANIFEST_NAME}")
                content = manifest.decode(data, path)
            except (ObjectNotFoundError, CheckpointCorruptError):
                self._published[key] = None
            else:
                mine = (content.name, content.ref.trial_id) == (name, trial.trial_id)
                self._published[key] = Published(content, manifest.digest(data), path) if mine else None
        return self._published[key]

    # --- bringing it here --------------------------------------------------------------------------------

    def fetch_journal(self, incoming: Path) -> ExperimentPaths:
        """Bring description, generations and journal into an empty directory, and nothing else: no history either.

        Of a place that cannot list, everything.
        """
        paths = ExperimentPaths(incoming)
        if not self.uploader.can.list:
            self.call(transfer_jobs.FetchFiles(prefix=self.name, target=str(incoming)))
            return paths
        for attempt in range(READ_AGAIN):
            names = [key for key in self.keys if key.split("/")[0] in JOURNAL and not is_history(key)]
            try:
                self.call(transfer_jobs.FetchFiles(prefix=self.name, target=str(incoming), names=names))
                break
            except ObjectNotFoundError:
                if attempt == READ_AGAIN - 1:
                    raise
                fs.rmtree(incoming)
                self.look()
        return paths

    def fetch(self, names: list[str], root: Path) -> None:
        """Bring these files to a directory."""
        if names:
            self.call(transfer_jobs.FetchFiles(prefix=self.name, target=str(root), names=names))

    def to_fetch(self, trials: Iterable[Trial]) -> list[tuple[Trial, CheckpointRecord]]:
        """The checkpoints that are kept and complete there, and are not in the trials' directories."""
        whole = complete(self.checkpoints())
        return [
            (trial, record)
            for trial in trials
            for record in trial.checkpoints
            if record.ref.name in whole.get(trial.dirname, ()) and not fs.is_dir(trial.directory / record.ref.name)
        ]

    def fetch_checkpoints(self, trials: Iterable[Trial]) -> None:
        """Bring all of these."""
        for trial, record in self.to_fetch(trials):
            self.fetch_checkpoint(trial, record)

    def fetch_checkpoint(self, trial: Trial, record: CheckpointRecord) -> None:
        """Bring one to its trial's directory."""
        key, target = f"{self.name}/{trial.dirname}/{record.ref.name}", str(trial.directory / record.ref.name)
        self.call(transfer_jobs.FetchCheckpoint(key=key, target=target, digest=record.digest))

    def remove_partials(self, incoming: Path) -> None:
        """Remove what killed uploads left from what came here whole, of a place that cannot list, and note it."""
        for directory in (entry for entry in sorted(incoming.iterdir()) if entry.is_dir()):
            for path in sorted(directory.iterdir()):
                if parse_checkpoint(path.name) is not None and path.is_dir() and not (path / MANIFEST_NAME).exists():
                    fs.rmtree(path)
                    self.partials.setdefault(directory.name, []).append(path.name)

    def partials_of(self, trial: Trial) -> list[CheckpointRef]:
        """What was noted so of a trial and is none of its checkpoints."""
        kept = {record.ref.name for record in trial.checkpoints}
        partials = ((name, parse_checkpoint(name)) for name in self.partials.get(trial.dirname, ()) if name not in kept)
        return [
            CheckpointRef(trial.trial_id, name, *saved_by, -number, 0)
            for number, (name, saved_by) in enumerate(partials, start=1)
            if saved_by is not None
        ]

    def fetch_rest(self, root: Path, *, have: Callable[[str], bool], later: Collection[str] = ()) -> None:
        """Bring blobs and the small files of trials, of which `have(key)` is not true; checkpoints come when needed.

        `later`: directories of trials whose files are left there for now.

        A blob that is damaged is left out, and named in a warning; so is one that is missing.
        """
        wanted = [key for key in self.keys if is_small(key) and key.partition("/")[0] not in later and not have(key)]
        self.fetch(wanted, root)
        for key in [key for key in wanted if key.startswith("blobs/")]:
            if manifest.digest(fs.read_file(root / key)) != key.removeprefix("blobs/"):
                fs.unlink(root / key)
                log.warning(
                    "%s is damaged: it is not used, and missed only where it is needed", child_of(self.uri, key)
                )
        for name in sorted(blobs_named(ExperimentPaths(root))):
            if f"blobs/{name}" not in self.keys and not have(f"blobs/{name}"):
                log.warning(
                    "%s is missing, which is missed only where it is needed", child_of(self.uri, f"blobs/{name}")
                )

    def read(self, key: str) -> bytes:
        """A small object, relative to the experiment. Raises ObjectNotFoundError."""
        return self.call(transfer_jobs.Read(key=f"{self.name}/{key}"))

    def call(self, job: transfer_jobs.AnyJob) -> bytes:
        """Do a job and wait for it. Raises TransferError."""
        return self.uploader.call(job, timeout_s=self._timeout_s)


def fetch_log(remote: RemoteExperiment, root: Path) -> None:
    """Bring the warnings of its drivers."""
    remote.fetch([file.name for file in ExperimentPaths(root).driver_logs if file.name in remote.keys], root)


def fetch_history(remote: RemoteExperiment, root: Path) -> None:
    """Bring what snapshots have replaced, as far as it is not there already."""
    remote.fetch([key for key in remote.keys if is_history(key) and not fs.exists(root / key)], root)


def generation_of(key: str) -> int | None:
    """The generation whose record lies there; None: none does."""
    return parse_generation(key.removeprefix("generations/")) if key.startswith("generations/") else None


def complete(there: dict[str, dict[str, bool]]) -> dict[str, set[str]]:
    """Of `RemoteExperiment.checkpoints` those that are complete."""
    return {dirname: {name for name, whole in names.items() if whole} for dirname, names in there.items()}


def _is_users(directory: Path) -> bool:
    """What has a checkpoint's name here and is none is an artifact of the user's."""
    return fs.is_dir(directory) and not fs.exists(directory / MANIFEST_NAME)


def is_small(key: str) -> bool:
    parts = key.split("/")
    return parts[0] == "blobs" or (len(parts) == 2 and is_trial_file(parts[1]))
