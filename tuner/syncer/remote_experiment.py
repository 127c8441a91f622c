"""The experiment as its replica has it, before the loop runs: looked at, compared with what lies here, brought here.

"Newer" is by the chain of generations (design.md section 7), never by a clock: the side whose chain names the other's
newest generation continues it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from trainables.errors import CheckpointCorruptError, CheckpointError, ObjectNotFoundError
from trainables.store import fs, manifest, verify
from trainables.store.manifest import MANIFEST_NAME, Published
from trainables.tagged_kinds import NAMED
from trainables.transfer import agent
from trainables.wire import CheckpointRef
from tuner.error import ExperimentDamagedError
from tuner.experiment import events as ev
from tuner.experiment import formats
from tuner.experiment.generations import GenerationRecord, decode_record, encode_record
from tuner.experiment.journal import JournalContents, read_journal
from tuner.experiment.paths import ExperimentPaths, is_history, is_trial_file, parse_checkpoint, parse_generation
from tuner.experiment.reader import facts_of
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.syncer.uploader import Uploader

log = logging.getLogger(__name__)

REPLACED = ".replaced"
"""A file of that name beside no experiment.json: what else is there is of an experiment that was replaced."""
READ_AGAIN = 3
"""Compaction may remove a segment between the look and the fetch: so often is looked again."""


class Relation(Enum):
    """How the replica's history stands to the one here."""

    ABSENT = "there is none over there"
    OLDER = "what is here continues it, or is the same"
    NEWER = "it continues what is here, or there is nothing here"
    DIVERGED = "each has a generation that the other lacks"


class RemoteExperiment:
    """One experiment in one place.

    Args:
        uploader: does the work.
        place: how messages call the place, without credentials.
        name: of the experiment.
        timeout_s: without progress, after which an operation is given up.
    """

    def __init__(self, uploader: Uploader, place: str, name: str, *, timeout_s: float) -> None:
        self.uploader, self.place, self.name = uploader, place, name
        self._timeout_s = timeout_s
        self._keys: list[str] = []
        self._sizes: dict[str, int] = {}
        self._index: dict[str, dict[str, list[str]]] | None = None
        """Trial directory -> name of a checkpoint -> its keys; None: not looked for yet."""
        self._published: dict[str, Published | None] = {}
        self.halves: dict[str, list[str]] = {}
        """Trial directory -> names of checkpoints there without a manifest, of a place that cannot list."""
        self.look()

    @property
    def uri(self) -> str:
        return f"{self.place}/{self.name}"

    @property
    def keys(self) -> list[str]:
        """Everything that the experiment has over there, relative to it."""
        return self._keys

    @keys.setter
    def keys(self, keys: list[str]) -> None:
        self._keys, self._index = keys, None

    def look(self) -> None:
        """See what is there."""
        if not self.uploader.can.list:
            return
        data = self._call(agent.ListKeys(prefix=self.name))
        found = msgspec.json.decode(data, type=dict[str, int])
        self._sizes = {key.removeprefix(f"{self.name}/"): size for key, size in found.items()}
        self.keys = list(self._sizes)

    @property
    def exists(self) -> bool:
        """There is an experiment of that name."""
        if self.uploader.can.list:
            return "experiment.json" in self.keys
        try:
            self._read("experiment.json")
        except ObjectNotFoundError:
            return False
        return True

    def settings(self) -> dict[str, Any]:
        """Its experiment.json. Raises ExperimentDamagedError, NewerFormatError."""
        try:
            loaded: dict[str, Any] = json.loads(self._read("experiment.json"))
            version = int(loaded["format"])
        except (ValueError, KeyError, TypeError) as error:
            raise ExperimentDamagedError(f"{self.uri}/experiment.json cannot be read: {error}") from error
        formats.check(version, f"{self.uri}/experiment.json")
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
        """Files of a checkpoint that is here which are not over there, by names and sizes."""
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
        """Keys of checkpoints over there that are called as one of `trial` here and are not it; manifests first."""
        here = {record.ref.name: record.digest for record in trial.checkpoints}
        here |= {found.path.name: found.digest for found in verify.list_checkpoints(trial.directory)}
        keys = []
        for name, whole in self._checkpoints_of(trial.dirname).items():
            if whole and name in here:
                if manifest.digest(self._read(f"{trial.dirname}/{name}/{MANIFEST_NAME}")) != here[name]:
                    keys += self._indexed()[trial.dirname][name]
        return sorted(keys, key=lambda key: not key.endswith(f"/{MANIFEST_NAME}"))

    def _manifest(self, trial: Trial, name: str) -> Published | None:
        """None: it cannot be read, or is another checkpoint's."""
        key = f"{trial.dirname}/{name}"
        if key not in self._published:
            path = trial.directory / name
            try:
                data = self._read(f"{key}/{MANIFEST_NAME}")
                content = manifest.decode(data, path)
            except (ObjectNotFoundError, CheckpointCorruptError):
                self._published[key] = None
            else:
                mine = (content.name, content.ref.trial_id) == (name, trial.trial_id)
                self._published[key] = Published(content.ref, path, content, manifest.digest(data)) if mine else None
        return self._published[key]

    # --- bringing it here --------------------------------------------------------------------------------

    def fetch_books(self, incoming: Path) -> ExperimentPaths:
        """Bring description, generations and journal into an empty directory, and nothing else: no history either.

        Of a place that cannot list, everything.
        """
        paths = ExperimentPaths(incoming)
        if not self.uploader.can.list:
            self._call(agent.FetchFiles(prefix=self.name, target=str(incoming)))
            return paths
        for attempt in range(READ_AGAIN):
            books = [key for key in self.keys if key.split("/")[0] in ("experiment.json", "generations", "journal")]
            names = [key for key in books if not is_history(key)]
            try:
                self._call(agent.FetchFiles(prefix=self.name, target=str(incoming), names=names))
                break
            except ObjectNotFoundError:
                if attempt == READ_AGAIN - 1:
                    raise
                fs.rmtree(incoming)
                self.look()
        return paths

    def take_out_halves(self, incoming: Path) -> None:
        """Remove what killed uploads left from what came here whole, of a place that cannot list, and note it."""
        for directory in (entry for entry in sorted(incoming.iterdir()) if entry.is_dir()):
            for path in sorted(directory.iterdir()):
                if parse_checkpoint(path.name) is not None and path.is_dir() and not (path / MANIFEST_NAME).exists():
                    fs.rmtree(path)
                    self.halves.setdefault(directory.name, []).append(path.name)

    def half_of(self, trial: Trial) -> list[CheckpointRef]:
        """What was noted so of a trial and is none of its checkpoints."""
        kept = {record.ref.name for record in trial.checkpoints}
        halves = ((name, parse_checkpoint(name)) for name in self.halves.get(trial.dirname, ()) if name not in kept)
        return [
            CheckpointRef(trial.trial_id, name, *saved_by, -number, 0)
            for number, (name, saved_by) in enumerate(halves, start=1)
            if saved_by is not None
        ]

    def small_files(self) -> dict[str, list[str]]:
        """Trial directory -> names of what the loggers wrote there."""
        found: dict[str, list[str]] = {}
        for key in self.keys:
            if _is_small(key) and not key.startswith("blobs/"):
                found.setdefault(key.partition("/")[0], []).append(key.partition("/")[2])
        return found

    def fetch_rest(self, root: Path, *, have: Callable[[str], bool], later: Collection[str] = ()) -> None:
        """Bring blobs and the small files of trials, of which `have(key)` is not true; checkpoints come when needed.

        `later`: directories of trials whose files are left there for now.

        A blob that is damaged over there is not laid there, and named in a warning; so is one that is missing.
        """
        wanted = [key for key in self.keys if _is_small(key) and key.partition("/")[0] not in later and not have(key)]
        if wanted:
            self._call(agent.FetchFiles(prefix=self.name, target=str(root), names=wanted))
        for key in [key for key in wanted if key.startswith("blobs/")]:
            if manifest.digest(fs.read_file(root / key)) != key.removeprefix("blobs/"):
                fs.unlink(root / key)
                log.warning("%s/%s is damaged: it is not used, and missed only where it is needed", self.uri, key)
        for name in sorted(blobs_named(ExperimentPaths(root))):
            if f"blobs/{name}" not in self.keys and not have(f"blobs/{name}"):
                log.warning("%s/blobs/%s is missing, which is missed only where it is needed", self.uri, name)

    def fetch_log(self, root: Path) -> None:
        """Bring the warnings of its drivers."""
        wanted = [file.name for file in ExperimentPaths(root).driver_logs if file.name in self.keys]
        if wanted:
            self._call(agent.FetchFiles(prefix=self.name, target=str(root), names=wanted))

    def fetch_history(self, root: Path) -> None:
        """Bring what snapshots have replaced, as far as it is not there already."""
        wanted = [key for key in self.keys if is_history(key) and not fs.exists(root / key)]
        if wanted:
            self._call(agent.FetchFiles(prefix=self.name, target=str(root), names=wanted))

    def relation(self, paths: ExperimentPaths, incoming: Path) -> tuple[Relation, JournalContents | None]:
        """Compare with what lies here, and bring the books into `incoming` where that is needed to tell."""
        if not self.exists:
            return Relation.ABSENT, None
        if not paths.experiment_json.exists():
            return Relation.NEWER, read_journal(self.fetch_books(incoming))
        here = read_journal(paths)
        if self.uploader.can.list and not self._is_beyond(here, paths):
            return Relation.OLDER, None
        there = read_journal(self.fetch_books(incoming))
        return compare(here, there), there

    def _is_beyond(self, here: JournalContents, paths: ExperimentPaths) -> bool:
        """Whether a look at the names does not tell that everything over there is here too."""
        books = (key for key in self.keys if key.startswith("journal/") and not is_history(key))
        journal = {key.removeprefix("journal/") for key in books}
        if not journal - set(fs.listdir(paths.journal)):
            highest = max((number for key in self.keys if (number := _generation(key))), default=0)
            known = {(link.generation, link.id) for link in here.chain}
            return bool(highest) and highest <= here.generation and (highest, self._id(highest)) not in known
        return True

    def _id(self, generation: int) -> str | None:
        try:
            key = f"generations/{generation:06d}.json"
            return decode_record(self._read(key), f"{self.uri}/{key}").id
        except (ObjectNotFoundError, msgspec.DecodeError):
            return None

    def _read(self, key: str) -> bytes:
        return self._call(agent.Read(key=f"{self.name}/{key}"))

    def _call(self, job: agent.AnyJob) -> bytes:
        return self.uploader.call(job, timeout_s=self._timeout_s)


def at_rest(contents: JournalContents, root: Path, whole: Mapping[str, Collection[str]]) -> set[str]:
    """Directories of trials that had ended when the last snapshot was written, and of which no fact speaks since then.

    That they were copied does not count. Not of those whose kept checkpoints are not all over there (`whole`): they may
    go on.
    """
    return {
        trial.dirname
        for trial in _ended(contents, root)
        if {record.ref.name for record in trial.checkpoints} <= set(whole.get(trial.dirname, ()))
    }


def unchanged(here: JournalContents, there: JournalContents, root: Path) -> set[str]:
    """Directories of trials that had ended at the last snapshot of both, and did not run in between."""

    def lives(contents: JournalContents) -> dict[str, tuple[Any, ...]]:
        return {
            trial.dirname: (
                trial.trial_id,
                trial.attempt_generation,
                trial.attempt,
                trial.iteration,
                trial.ended_at,
                bytes(trial.raw_result),
            )
            for trial in _ended(contents, root)
        }

    mine, its = lives(here), lives(there)
    return {dirname for dirname, life in mine.items() if its.get(dirname) == life}


def _ended(contents: JournalContents, root: Path) -> list[Trial]:
    """Trials that had ended at the last snapshot, and of which no fact speaks since; that they were copied is none."""
    told = set()
    for fact in facts_of(ExperimentPaths(root), contents.bodies):
        if not isinstance(fact, ev.CheckpointCopied):
            told.add(getattr(fact, "trial", None) or getattr(getattr(fact, "ref", None), "trial_id", None))
    trials = ExperimentState.from_snapshot(root, contents.snapshot).trials
    return [trial for trial in trials if trial.status == Trial.TERMINATED and trial.trial_id not in told]


def compare(here: JournalContents, there: JournalContents) -> Relation:
    """Which of two histories of one experiment continues the other.

    Of one generation both may hold a part: whoever has more of it is newer.
    """
    if not there.chain:
        return Relation.OLDER
    if not here.chain:
        return Relation.NEWER
    mine = {(link.generation, link.id) for link in here.chain}
    its = {(link.generation, link.id) for link in there.chain}
    my_head, its_head = here.chain[-1], there.chain[-1]
    if (my_head.generation, my_head.id) == (its_head.generation, its_head.id):
        return Relation.NEWER if there.last_seq > here.last_seq else Relation.OLDER
    if (its_head.generation, its_head.id) in mine:
        return Relation.OLDER
    return Relation.NEWER if (my_head.generation, my_head.id) in its else Relation.DIVERGED


def adopt(incoming: ExperimentPaths, paths: ExperimentPaths) -> None:
    """Lay fetched books beside what is here: who reads then follows the newest generation, the rest is void.

    Their owner is gone, which was looked at over there: the records say so here. Raises ExperimentDamagedError before
    anything is written.
    """
    names = sorted(fs.listdir(incoming.generations)) if fs.exists(incoming.generations) else ()
    records = {name: _record(incoming.generations / name) for name in names if parse_generation(name) is not None}
    fs.make_dirs(paths.journal)
    fs.make_dirs(paths.generations)
    if fs.exists(paths.experiment_json):
        formats.raise_to_ours(paths)  # what comes may be of the format that we write
    for name, record in records.items():
        fs.replace_file(paths.generations / name, encode_record(record, released=True))
    for directory, target in ((incoming.journal, paths.journal), (incoming.history, paths.history)):
        names = [name for name in _files(directory) if not fs.exists(target / name)]
        if names:
            fs.make_dirs(target)
        for name in names:
            fs.replace_file(target / name, fs.read_file(directory / name))
    fs.replace_file(paths.experiment_json, fs.read_file(incoming.experiment_json))


def _record(path: Path) -> GenerationRecord:
    try:
        return decode_record(fs.read_file(path), path)
    except msgspec.DecodeError as error:
        raise ExperimentDamagedError(str(error)) from error


def set_aside(paths: ExperimentPaths) -> Path:
    """Move an experiment out of the way, whole; returns where it lies now."""
    place = paths.root.parent / ".set-aside"
    fs.make_dirs(place)
    target = place / f"{paths.root.name}-{secrets.token_hex(4)}"
    fs.rename(paths.root, target)
    return target


def bring_back(paths: ExperimentPaths, aside: Path) -> None:
    """Undo `set_aside`; what lies in its place goes. For the owner of that only."""
    removed = aside.with_name(f"{aside.name}-removed")
    fs.rename(paths.root, removed)
    fs.rename(aside, paths.root)
    fs.rmtree(removed)
    with contextlib.suppress(OSError):  # others are set aside too
        fs.rmdir(aside.parent)


def complete(there: dict[str, dict[str, bool]]) -> dict[str, set[str]]:
    """Of `RemoteExperiment.checkpoints` those that are complete."""
    return {dirname: {name for name, whole in names.items() if whole} for dirname, names in there.items()}


def blobs_named(paths: ExperimentPaths) -> set[str]:
    """The hashes of blobs that an experiment's books name. Nothing is unpickled."""
    settings = json.loads(fs.read_file(paths.experiment_json)) if fs.exists(paths.experiment_json) else {}
    named = {settings[key] for key in ("space_blob", "settings_blob") if isinstance(settings.get(key), str)}
    for name in _files(paths.journal):
        named |= {hash.decode() for hash in NAMED.findall(fs.read_file(paths.journal / name))}
    return named


def _is_users(directory: Path) -> bool:
    """What has a checkpoint's name here and is none is an artifact of the user's."""
    return fs.is_dir(directory) and not fs.exists(directory / MANIFEST_NAME)


def _generation(key: str) -> int | None:
    return parse_generation(key.removeprefix("generations/")) if key.startswith("generations/") else None


def _files(directory: Path) -> list[str]:
    """Names of the files in a directory, which need not be there."""
    return [name for name in fs.listdir(directory) if not fs.is_dir(directory / name)] if fs.is_dir(directory) else []


def _is_small(key: str) -> bool:
    parts = key.split("/")
    return parts[0] == "blobs" or (len(parts) == 2 and is_trial_file(parts[1]))
