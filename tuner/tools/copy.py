"""`tuner cp`: an experiment copied to another address. Nothing is unpickled, and what is there is never replaced.

First a note of what is being copied, then what a journal names, the journal, checkpoints, each with its manifest last,
and the description that makes it an experiment at the very end. A copy that was cut off has that note, and is taken up
again by the same command.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import blake3

from trainables.errors import CheckpointError, ObjectNotFoundError
from trainables.places import child_of, split_query
from trainables.store.manifest import MANIFEST_NAME, Manifest
from trainables.transfer import between, remote_checkpoints
from trainables.transfer.backend import Backend
from trainables.transfer.local import LocalBackend
from trainables.transfer.open import shown
from tuner.error import ExperimentDamagedError, ExperimentExistsError, SettingError
from tuner.experiment.generations import decode_record, encode_record
from tuner.experiment.hostile import said
from tuner.experiment.paths import ExperimentPaths, is_history, parse_generation
from tuner.experiment.reader import lies_at, load_with_journal
from tuner.experiment.state import ExperimentState
from tuner.progress.task_bar import TaskBar
from tuner.syncer.claim import encode_heartbeat, heartbeat_name
from tuner.syncer.remote_experiment import JOURNAL, RemoteExperiment

_COPYING = ".copying"
"""In a copy that is not whole yet: the id of the experiment."""


@dataclass(slots=True)
class Copied:
    """What came over."""

    checkpoints: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)
    """Checkpoints that could not be copied, one line each."""


def copy_experiment(
    source: Backend, remote: RemoteExperiment, target: Backend, to: str, work: TaskBar | None = None
) -> Copied:
    """Copy an experiment, dead or running, to the key `to` of another place.

    Args:
        source, remote: the place it lies in, and the experiment there.

    Raises ExperimentExistsError, SettingError when something else is there, ExperimentDamagedError for a blob that is
    not itself, TransferError.
    """
    before = remote.checkpoints()
    with tempfile.TemporaryDirectory(prefix="experiment-") as directory, lies_at(Path(directory) / "books", remote.uri):
        beside = Path(directory) / "books"
        paths = remote.fetch_journal(beside)
        problems: list[str] = []
        state, contents = load_with_journal(paths, problems)
        problems += [f"{paths.journal}/{damage}" for damage in contents.damaged]
        _begin(remote, target, to)
        remote.look()  # what is whole by now, and known to this journal or to that of before
        chosen = _chosen(before, remote.checkpoints(), state)
        there = remote.checkpoints()
        rest = [key for key in remote.keys if _is_plain(key, there)]
        where = source.root / remote.name if isinstance(source, LocalBackend) else beside
        if where == beside and rest:
            source.fetch(remote.name, beside, rest)
        with lies_at(where, remote.uri):
            _check_blobs(where, rest)
        _push(target, where, to, [key for key in rest if key.startswith("blobs/")])
        _push(target, beside, to, _under(beside, paths.journal))
        _push(target, where, to, [key for key in rest if not key.startswith("blobs/")])
        copied = _checkpoints(source, remote, target, to, chosen, state, work or TaskBar("", ""))
        _push_generations(target, paths, to, problems)
        _push(target, beside, to, [paths.experiment_json.name])  # last: from now on it is an experiment
        target.delete([f"{to}/{_COPYING}"])
        copied.problems[:0] = [line.replace(str(beside), split_query(remote.uri)[0]) for line in problems]
    return copied


def check_room(target: Backend, to: str, known: Collection[str] = ()) -> None:
    """Raise SettingError when the key `to` holds something, but for files and directories named in `known`."""
    there = sorted(name for name in target.children(to) if name.rstrip("/") not in known)
    if there:
        url = shown(target.url(to))
        more = f" and {len(there) - 3} more" if len(there) > 3 else ""
        raise SettingError(
            f"{url!r} is not accepted: it holds {', '.join(there[:3])}{more}, and nothing is mixed with what is there. "
            f"Give a DST that is not there yet, or {url + '/'!r}: then the copy goes under it"
        )


def copy_checkpoint(source: Backend, key: str, target: Backend, to: str, work: TaskBar | None = None) -> Manifest:
    """Copy one checkpoint, every hash looked at on the way; the same one there already is no error.

    Raises SettingError when something else is there, CheckpointError, TransferError.
    """
    files = remote_checkpoints.read_manifest(source, key).manifest.files
    check_room(target, to, {MANIFEST_NAME, *(entry.name.partition("/")[0] for entry in files)})
    work = work or TaskBar("", "")
    size = sum(entry.size for entry in files)
    work.of(1, size)
    work.begin(size)
    return between.copy(source, key, target, to, progress=work.moved)


def _begin(remote: RemoteExperiment, target: Backend, to: str) -> None:
    """Note what is being copied, unless an earlier copy of the same was cut off there."""
    if target.exists(f"{to}/experiment.json"):
        raise ExperimentExistsError(f"there is an experiment at {target.url(to)}: `tuner sync` brings it up to date")
    note = str(remote.settings().get("id")).encode()
    try:
        if target.read(f"{to}/{_COPYING}") == note:
            return
    except ObjectNotFoundError:
        pass
    check_room(target, to)
    target.put(f"{to}/{_COPYING}", note)


def _chosen(
    before: dict[str, dict[str, bool]], now: dict[str, dict[str, bool]], state: ExperimentState
) -> list[tuple[str, str]]:
    """(trial directory, name) of the checkpoints to copy: none is ahead of the journal that goes with it."""
    known = {(trial.dirname, record.ref.name) for trial in state.trials for record in trial.checkpoints}
    gone = {(trial.dirname, ref.name) for trial in state.trials for ref in trial.forgotten}
    whole = {(dirname, name) for dirname, names in now.items() for name, is_whole in names.items() if is_whole}
    older = {(dirname, name) for dirname, names in before.items() for name, is_whole in names.items() if is_whole}
    return sorted((whole & (known | older)) - gone)


def _is_plain(key: str, there: Mapping[str, Collection[str]]) -> bool:
    """Whether a file is no part of what a resume reads, of a checkpoint, or of what is not finished."""
    parts = key.split("/")
    if is_history(key):
        return not parts[-1].startswith(".")
    if parts[0] in (*JOURNAL, "orders") or any(part.startswith(".") for part in parts):
        return False
    return len(parts) < 3 or parts[1] not in there.get(parts[0], ())


def _checkpoints(
    source: Backend,
    remote: RemoteExperiment,
    target: Backend,
    to: str,
    chosen: Sequence[tuple[str, str]],
    state: ExperimentState,
    work: TaskBar,
) -> Copied:
    copied = Copied()
    sizes = {(trial.dirname, record.ref.name): record.bytes for trial in state.trials for record in trial.checkpoints}
    work.of(len(chosen), sum(sizes.get(one, 0) for one in chosen))
    for dirname, name in chosen:
        work.begin(sizes.get((dirname, name), 0))
        try:
            key = f"{dirname}/{name}"
            content = between.copy(source, f"{remote.name}/{key}", target, f"{to}/{key}", progress=work.moved)
        except CheckpointError as error:
            copied.problems.append(str(error))
        except (ValueError, RecursionError) as error:  # a manifest that is none
            copied.problems.append(f"{child_of(remote.uri, f'{dirname}/{name}')} cannot be read: {said(error)}")
        else:
            copied.checkpoints += 1
            copied.bytes += content.bytes
        work.item()
    return copied


def _check_blobs(where: Path, keys: Sequence[str]) -> None:
    for key in keys:
        if key.startswith("blobs/") and blake3.blake3((where / key).read_bytes()).hexdigest() != key[len("blobs/") :]:
            raise ExperimentDamagedError(f"{where / key} is not what was stored: its BLAKE3 hash differs")


def _push(target: Backend, source: Path, to: str, names: Sequence[str]) -> None:
    if names:
        target.push(source, to, names)


def _under(root: Path, directory: Path) -> list[str]:
    files = [path for path in directory.iterdir() if path.is_file()] if directory.is_dir() else []
    return sorted(path.relative_to(root).as_posix() for path in files)


def _push_generations(target: Backend, paths: ExperimentPaths, to: str, problems: list[str]) -> None:
    """The copy has the same history, and no owner."""
    names = [name for name in _under(paths.generations, paths.generations) if parse_generation(name) is not None]
    for name in names:
        try:
            record = decode_record((paths.generations / name).read_bytes(), paths.generations / name)
        except ValueError as error:  # the journal is read without it, too
            problems.append(str(error))
            continue
        target.put(f"{to}/generations/{name}", encode_record(record, released=True))
    if names:
        highest = max(number for name in names if (number := parse_generation(name)) is not None)
        target.put(f"{to}/generations/{heartbeat_name(highest)}", encode_heartbeat("released", 0))
