"""`tuner verify EXPERIMENT`: read the whole journal, every manifest, and hash every file and blob."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.cli import place, text

if TYPE_CHECKING:
    from tuner.experiment.trial import Trial


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser("verify", help="check every manifest and every hash")
    verb.add_argument("experiment", metavar="EXPERIMENT", help="a path, or a name under ~/tuner_results")
    verb.add_argument("--json", action="store_true", help="for programs")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    found = examine(place.experiment(arguments.experiment))
    if arguments.json:
        print(text.as_json(found))
    else:
        for kind in ("notes", "problems"):
            for line in found[kind]:
                print(f"{kind[:-1]}: {line}")
        print(
            f"{found['checkpoints']} checkpoints ({text.size(found['bytes'])}) and {found['blobs']} blobs of "
            f"{found['trials']} trials: {len(found['problems']) or 'no'} problem{'s' * (len(found['problems']) != 1)}"
        )
    return 1 if found["problems"] else 0


def examine(path: Path) -> dict[str, Any]:
    """Look at everything that the experiment holds. Nothing is changed, nothing is unpickled."""
    from tuner.experiment.journal import read_journal
    from tuner.experiment.leftovers import trials_with_results
    from tuner.experiment.paths import ExperimentPaths
    from tuner.experiment.reader import load_state

    paths = ExperimentPaths(path)
    state = load_state(paths)
    found: dict[str, Any] = {"path": str(path), "trials": len(state.trials), "checkpoints": 0, "bytes": 0}
    contents = read_journal(paths)
    damaged = [f"{paths.journal / name} is damaged before its end: facts are lost" for name in contents.damaged]
    found |= {"notes": list(contents.notes), "problems": damaged}
    known = {trial.dirname for trial in state.trials}
    found["problems"] += [
        f"{paths.root / name} holds results that the journal does not know"
        for name in trials_with_results(paths)
        if name not in known
    ]
    for trial in state.trials:
        _trial(trial, found)
    found["blobs"] = _blobs(paths.blobs, found["problems"])
    return found


def _trial(trial: Trial, found: dict[str, Any]) -> None:
    from trainables.store import verify

    listing = verify.scan(trial.directory)
    journaled = {record.ref.name: record for record in trial.checkpoints}
    for published in listing.complete:
        found["checkpoints"] += 1
        found["bytes"] += published.manifest.bytes
        found["problems"] += verify.problems(published.path)
        record = journaled.pop(published.ref.name, None)
        if record is None:
            found["notes"].append(f"{published.path} is complete but not in the journal (a resume decides about it)")
        elif record.digest and record.digest != published.digest:
            found["problems"].append(f"{published.path}: the manifest is not the one that was published")
    for broken in listing.broken:
        journaled.pop(broken.path.name, None)
        found["problems"].append(f"{broken.path}: {broken.reason}")
    found["problems"] += [f"{trial.directory / name} is in the journal but not on disk" for name in journaled]
    found["notes"] += [f"{unknown} holds no manifest; it is never used nor deleted" for unknown in listing.unknown]


def _blobs(directory: Path, problems: list[str]) -> int:
    import blake3

    blobs = sorted(directory.iterdir()) if directory.is_dir() else []
    blobs = [blob for blob in blobs if not blob.name.startswith(".")]
    for blob in blobs:
        if blake3.blake3(blob.read_bytes()).hexdigest() != blob.name.split(".")[0]:
            problems.append(f"{blob} is not what was stored: its BLAKE3 hash differs")
    return len(blobs)
