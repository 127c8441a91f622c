"""`tuner verify EXPERIMENT`: read the whole journal and every manifest, hash every file and blob; or one checkpoint."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from pathlib import Path
from typing import Any

from trainables.errors import CheckpointError
from trainables.places import child_of, is_elsewhere, parent_and_name, split_query, trim_slash
from trainables.store import verify
from trainables.store.manifest import MANIFEST_NAME
from trainables.tagged_kinds import NAMED
from trainables.transfer import remote_checkpoints as checkpoints
from trainables.transfer.backend import Backend
from trainables.transfer.open import open_backend, shown
from tuner.cli import output, place
from tuner.experiment.history_format import read_all
from tuner.experiment.hostile import UNREADABLE, noted, said
from tuner.experiment.journal import JournalContents, read_journal
from tuner.experiment.leftovers import trials_with_results
from tuner.experiment.paths import ExperimentPaths, parse_pack
from tuner.experiment.reader import load_with_journal, read_settings
from tuner.experiment.state import ExperimentState
from tuner.experiment.trial import Trial
from tuner.progress.task_bar import TaskBar


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser("verify", help="check every manifest and every hash")
    verb.add_argument(
        "experiment",
        metavar="EXPERIMENT",
        help="a path, a URI, or a name under ~/tuner_results; or a checkpoint's, as first@best",
    )
    verb.add_argument("--json", action="store_true", help="for programs")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    given = arguments.experiment
    with TaskBar("verifying", "checkpoint", say=lambda line: output.complain("verify", line)).shown() as work:
        one = _checkpoint(given, work)
        if one is not None:
            found = one
        else:
            found = examine_elsewhere(given, work) if is_elsewhere(given) else examine(place.experiment(given), work)
    if arguments.json:
        output.say(output.as_json(found))
    else:
        for kind in ("notes", "problems"):
            for line in found[kind]:
                output.say(f"{kind[:-1]}: {output.value(line)}")
        what = (
            f"{output.counted(found['checkpoints'], 'checkpoint')} ({output.size(found['bytes'])}) and "
            f"{output.counted(found['blobs'], 'blob')} of {output.counted(found['trials'], 'trial')}"
            if one is None
            else f"{found['path']}: a checkpoint ({output.size(found['bytes'])})"
        )
        output.say(f"{what}: {len(found['problems']) or 'no'} problem{'s' * (len(found['problems']) != 1)}")
    return 1 if found["problems"] else 0


def _checkpoint(given: str, work: TaskBar) -> dict[str, Any] | None:
    """Look at the one checkpoint that is meant; None: it is none."""
    whole = place.checkpoint(given) or place.whole(given)
    above, name = parent_and_name(whole)
    if not name:
        return None
    found: dict[str, Any] = {"path": trim_slash(shown(whole)), "trials": 0, "checkpoints": 1, "bytes": 0, "blobs": 0}
    found |= {"notes": [], "problems": []}
    with open_backend(above) as backend:
        try:
            if not backend.exists(f"{name}/{MANIFEST_NAME}"):
                return None
            remote = checkpoints.read_manifest(backend, name)
            found["bytes"] = remote.manifest.bytes
            work.of(1, remote.manifest.bytes)
            work.begin(remote.manifest.bytes)
            with tempfile.TemporaryDirectory(prefix="verify-") as directory:
                target = Path(directory) / "checkpoint"
                checkpoints.fetch(backend, name, target, digest=remote.digest, progress=work.moved)
        except CheckpointError as error:
            found["problems"].append(str(error))
    return found


def examine_elsewhere(uri: str, work: TaskBar) -> dict[str, Any]:
    """Look at all that a remote experiment holds: every file is fetched and hashed, and nothing of it is kept."""
    problems: list[str] = []
    with place.fact_log(uri, history=True) as (paths, address):
        state, contents = load_with_journal(paths, problems)
        problems = [line.replace(str(paths.root), split_query(address)[0]) for line in problems]
        problems += [child_of(address, f"journal/{lost}") for lost in contents.damaged]
        problems += [child_of(address, f"journal/history/{line}") for line in _history(paths)]
        named = _named(paths, contents)
    found: dict[str, Any] = {"path": address, "trials": len(state.trials), "checkpoints": 0, "bytes": 0}
    found |= {"notes": list(contents.notes), "problems": problems}
    above, name = parent_and_name(uri)
    _expect(work, state)
    with open_backend(above) as backend:
        for trial in state.trials:
            with noted(backend.url(f"{name}/{trial.dirname}"), problems):
                _trial_elsewhere(backend, f"{name}/{trial.dirname}", trial, found, work)
        blobs = _blobs_elsewhere(backend, f"{name}/blobs", problems)
        if lost := named.keys() - blobs:  # of one that is written to meanwhile they may have gone in order
            with place.fact_log(uri) as (paths, _):
                lost &= _named(paths, read_journal(paths)).keys()
        there = backend.url(f"{name}/blobs")
    problems += [f"{child_of(there, blob)} is missing: {named[blob]}" for blob in sorted(lost)]
    return found | {"blobs": len(blobs)}


def _trial_elsewhere(backend: Backend, key: str, trial: Trial, found: dict[str, Any], work: TaskBar) -> None:
    listing = checkpoints.listed(backend, key)
    journaled = {record.ref.name: record for record in trial.checkpoints}
    for remote in listing.complete:
        found["checkpoints"] += 1
        found["bytes"] += remote.manifest.bytes
        record = journaled.pop(remote.ref.name, None)
        if record is None:
            found["notes"].append(f"{backend.url(remote.key)} is complete but not in the journal")
        work.begin(remote.manifest.bytes)
        with tempfile.TemporaryDirectory(prefix="verify-") as directory:
            try:
                digest = record.digest if record is not None and record.digest else remote.digest
                target = Path(directory) / "checkpoint"
                checkpoints.fetch(backend, remote.key, target, digest=digest, progress=work.moved)
            except CheckpointError as error:
                found["problems"].append(str(error))
            except (OSError, ValueError) as error:
                found["problems"].append(f"{backend.url(remote.key)} cannot be read: {said(error)}")
        work.item()
    for broken in listing.broken:
        journaled.pop(broken.where.rpartition("/")[2], None)
        found["problems"].append(f"{backend.url(broken.where)}: {broken.reason}")
    for name, record in journaled.items():
        address = backend.url(f"{key}/{name}")
        if record.copies and parent_and_name(backend.url(key))[0] not in record.copies:
            found["notes"].append(f"{address} is only at {record.copies[-1]}, and was not looked at there")
        else:
            kind = "notes" if record.here and not record.copies else "problems"
            found[kind].append(f"{address} is in the journal but not there")
    found["notes"] += [f"{backend.url(unknown)} holds no manifest; it is never used" for unknown in listing.unknown]


def _blobs_elsewhere(backend: Backend, key: str, problems: list[str]) -> set[str]:
    names = [entry.key[len(key) + 1 :] for entry in backend.list(key)]
    for name in names:
        with tempfile.TemporaryDirectory(prefix="verify-") as directory:
            backend.fetch(key, Path(directory), [name])
            if not _is_itself(Path(directory) / name):
                problems.append(f"{backend.url(key)}/{name} is not what was stored: its BLAKE3 hash differs")
    return set(names)


def _named(paths: ExperimentPaths, contents: JournalContents) -> dict[str, str]:
    """Blobs that a resume needs -> what names them. Nothing is unpickled."""
    settings = read_settings(paths)
    named: dict[str, str] = {}
    for key in ("space_blob", "settings_blob"):
        if settings.get(key):
            named[settings[key]] = f"experiment.json names it as {key}"
    plugins: dict[str, str] = {}
    with contextlib.suppress(*UNREADABLE):  # which is a problem of its own
        plugins = ExperimentState.from_snapshot(paths.root, contents.snapshot).plugins
    named |= {hash: f"it holds the state of the {plugin}" for plugin, hash in plugins.items()}
    for body in (contents.snapshot or b"", *(body for _, body in contents.bodies)):
        for hash in NAMED.findall(body):
            named.setdefault(hash.decode(), "the config of a trial names it")
    return named


def examine(path: Path, work: TaskBar) -> dict[str, Any]:
    """Look at everything that the experiment holds. Nothing is changed, nothing is unpickled."""
    paths = ExperimentPaths(path)
    problems: list[str] = []
    state, contents = load_with_journal(paths, problems)
    found: dict[str, Any] = {"path": str(path), "trials": len(state.trials), "checkpoints": 0, "bytes": 0}
    found |= {"notes": list(contents.notes), "problems": problems}
    problems += [f"{paths.journal}/{damage}" for damage in contents.damaged]
    problems += [f"{paths.history}/{line}" for line in _history(paths)]
    known = {trial.dirname for trial in state.trials}
    problems += [
        f"{paths.root / name} holds results that the journal does not know"
        for name in trials_with_results(paths, but=known)
    ]
    copy = not paths.lock.exists()  # no driver ever ran on it: of directories copies hold those with files only
    _expect(work, state)
    for trial in state.trials:
        with noted(trial.directory, problems):
            _trial(trial, found, work, copy=copy)
    blobs = _blobs(paths.blobs, problems)
    named = _named(paths, contents)
    if lost := named.keys() - blobs:  # of one that runs they may have gone in order
        lost &= _named(paths, read_journal(paths)).keys()
    problems += [f"{paths.blobs / blob} is missing: {named[blob]}" for blob in sorted(lost)]
    return found | {"blobs": len(blobs)}


def _expect(work: TaskBar, state: ExperimentState) -> None:
    here = [record for trial in state.trials for record in trial.checkpoints if record.here]
    work.of(len(here), sum(record.bytes for record in here))


def _history(paths: ExperimentPaths) -> list[str]:
    """What is wrong with the packs of the history, one line each."""
    problems = []
    for pack in sorted(paths.history.iterdir()) if paths.history.is_dir() else ():
        if parse_pack(pack.name):
            try:
                for _ in read_all(pack):
                    pass
            except ValueError as error:
                problems.append(str(error))
            except FileNotFoundError:
                continue  # dropped just now
    return problems


def _trial(trial: Trial, found: dict[str, Any], work: TaskBar, *, copy: bool) -> None:
    listing = verify.scan(trial.directory)
    journaled = {record.ref.name: record for record in trial.checkpoints}
    for published in listing.complete:
        found["checkpoints"] += 1
        found["bytes"] += published.manifest.bytes
        work.begin(published.manifest.bytes)
        found["problems"] += verify.problems(published.path, files_only=copy, progress=work.moved)
        work.item()
        record = journaled.pop(published.ref.name, None)
        if record is None:
            found["notes"].append(f"{published.path} is complete but not in the journal (a resume decides about it)")
        elif record.digest and record.digest != published.digest:
            found["problems"].append(f"{published.path}: the manifest is not the one that was published")
    for broken in listing.broken:
        journaled.pop(broken.where.name, None)
        found["problems"].append(f"{broken.where}: {broken.reason}")
    for name, record in journaled.items():
        if record.copies or not record.here:
            where = record.copies[-1] if record.copies else "elsewhere"
            found["notes"].append(f"{trial.directory / name} is not here: it was copied to {where}")
        else:
            found["problems"].append(f"{trial.directory / name} is in the journal but not on disk")
    found["notes"] += [f"{unknown} holds no manifest; it is never used nor deleted" for unknown in listing.unknown]


def _blobs(directory: Path, problems: list[str]) -> set[str]:
    blobs = sorted(directory.iterdir()) if directory.is_dir() else []
    blobs = [blob for blob in blobs if not blob.name.startswith(".")]
    for blob in blobs:
        is_itself = True
        with noted(blob, problems):
            is_itself = _is_itself(blob)
        if not is_itself:
            problems.append(f"{blob} is not what was stored: its BLAKE3 hash differs")
    return {blob.name for blob in blobs}


def _is_itself(blob: Path) -> bool:
    import blake3

    return blake3.blake3(blob.read_bytes()).hexdigest() == blob.name.split(".")[0]
