"""`tuner ls [STORAGE]`: the experiments in a storage directory."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from trainables.transfer.open import shown
from tuner.cli import output, place
from tuner.experiment.hostile import UNREADABLE, said
from tuner.experiment.paths import ExperimentPaths, as_local_path, default_storage, is_elsewhere
from tuner.experiment.reader import load_with_journal


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser("ls", help="list the experiments in a directory or bucket")
    verb.add_argument("storage", nargs="?", metavar="STORAGE", help="a directory or a URI; default: ~/tuner_results")
    verb.add_argument("--json", action="store_true", help="for programs")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    storage, rows = _found(arguments.storage)
    for row in rows:
        if row["lost"]:
            output.say(f"tuner ls: {output.value(row['name'])}: {output.value(row['lost'])}", sys.stderr)
    if arguments.json:
        output.say(output.as_json(rows))
    elif not rows:
        output.say(f"no experiments in {storage}")
    else:
        header = ("name", "trials", "pending", "running", "paused", "done", "failed", "checkpoints", "size", "state")
        sizes = (None if row["bytes"] is None else output.size(row["bytes"]) for row in rows)
        cells = ([*map(row.get, header[:8]), size, row["state"]] for row, size in zip(rows, sizes, strict=True))
        output.say(
            output.table(header, cells, width=output.terminal_width(), first=("name", "state", "trials", "done"))
        )
    return 0


def _found(given: str | None) -> tuple[str, list[dict[str, Any]]]:
    """Where was looked, and a row per experiment there."""
    if given is None:
        default = default_storage()
        return str(default), [describe(path) for path in place.experiments(default)] if default.exists() else []
    if is_elsewhere(given):
        from tuner.syncer import views

        shown, names = views.names_under(given)
        return shown, [_describe_elsewhere(f"{given.rstrip('/')}/{name}", name) for name in names]
    storage = as_local_path(given)
    return str(storage), [describe(path) for path in place.experiments(storage)]


def _describe_elsewhere(uri: str, name: str) -> dict[str, Any]:
    found = {"name": name, "path": shown(uri)}
    try:
        with place.fact_log(uri) as (paths, _):
            return describe(paths.root) | found
    except UNREADABLE as error:
        return _empty() | found | {"state": f"unreadable: {said(error)}", "lost": f"unreadable: {said(error)}"}


def _empty() -> dict[str, Any]:
    """A line of which nothing is known."""
    columns = ("trials", "pending", "running", "paused", "done", "failed", "checkpoints", "bytes")
    return dict.fromkeys(columns) | {"state": "", "lost": ""}


def describe(path: Path) -> dict[str, Any]:
    """One line's facts. A directory that cannot be read is a line that says so, not the end of the list."""
    row = _empty() | {"name": path.name, "path": str(path)}
    problems: list[str] = []
    try:
        state, journal = load_with_journal(ExperimentPaths(path), problems)
    except UNREADABLE as error:
        row["state"] = row["lost"] = f"unreadable: {said(error)}"
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
        "lost": "; ".join([*map(str, journal.damaged), *problems]),
    }
