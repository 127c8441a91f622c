"""`tuner ls [STORAGE]`: the experiments in a storage directory."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tuner.cli import place, text
from tuner.error import TuneError


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser("ls", help="list the experiments in a storage directory")
    verb.add_argument("storage", nargs="?", metavar="STORAGE", help="default: ~/tuner_results")
    verb.add_argument("--json", action="store_true", help="for programs")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from tuner.experiment.paths import as_local_path, default_storage

    storage = as_local_path(arguments.storage) if arguments.storage else default_storage()
    if not arguments.storage and not storage.exists():
        rows = []
    else:
        rows = [describe(path) for path in place.experiments(storage)]
    if arguments.json:
        print(text.as_json(rows))
    elif not rows:
        print(f"no experiments in {storage}")
    else:
        header = ("name", "trials", "pending", "running", "paused", "done", "failed", "checkpoints", "size", "state")
        print(text.table(header, ([row[column] for column in header[:8]] + _end(row) for row in rows)))
    return 0


def describe(path: Path) -> dict[str, Any]:
    """One line's facts. A directory that cannot be read is a line that says so, not the end of the list."""
    from tuner.experiment.paths import ExperimentPaths
    from tuner.experiment.reader import load_state

    row: dict[str, Any] = dict.fromkeys(
        ("trials", "pending", "running", "paused", "done", "failed", "checkpoints", "bytes")
    )
    row |= {"name": path.name, "path": str(path), "state": ""}
    try:
        state = load_state(ExperimentPaths(path))
    except TuneError as error:
        row["state"] = f"unreadable: {error}"
        return row
    counts = state.counts
    return row | {
        "trials": len(state.trials),
        "pending": counts["PENDING"],
        "running": counts["RUNNING"],
        "paused": counts["PAUSED"],
        "done": counts["TERMINATED"],
        "failed": counts["ERROR"],
        "checkpoints": state.checkpoint_count,
        "bytes": state.checkpoint_bytes,
        "state": state.run_ended or "running, or killed",
    }


def _end(row: dict[str, Any]) -> list[Any]:
    return [None if row["bytes"] is None else text.size(row["bytes"]), row["state"]]
