"""`tuner ls [STORAGE]`: the experiments in a storage directory."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainables.places import child_of
from trainables.transfer.open import shown
from tuner.analysis import scopes
from tuner.analysis.goal import goal_of
from tuner.cli import output, place
from tuner.clock import SystemClock
from tuner.experiment import run_state
from tuner.experiment.hostile import UNREADABLE, said
from tuner.experiment.liveness import Liveness, last_driver
from tuner.experiment.paths import ExperimentPaths, as_local_path, default_storage, is_elsewhere
from tuner.experiment.reader import load_with_journal, read_settings
from tuner.experiment.trial import Trial

HEADER = (
    *("name", "started", "state", "best", "trials", "done", "failed", "running", "paused", "pending"),
    *("checkpoints", "size"),
)


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
        first = ("name", "state", "best", "trials", "done", "failed")
        whole = ("best", "started")
        # The date comes next, then what else there is.
        output.say(output.table(HEADER, map(_cells, rows), width=output.terminal_width(), first=first, whole=whole))
    return 0


def _cells(row: dict[str, Any]) -> list[Any]:
    """As a person reads it: the date to the minute, the best value with its name."""
    best, at = row["best"], row["started_at"]
    shown = {
        "started": None if at is None else output.time(at)[:-3],
        "best": None if best is None else f"{output.value(best['metric'])} {output.value(best['value'])}",
        "size": None if row["bytes"] is None else output.size(row["bytes"]),
    }
    return [shown.get(name, row.get(name)) for name in HEADER]


def _found(given: str | None) -> tuple[str, list[dict[str, Any]]]:
    """Where was looked, and a row per experiment there."""
    if given is None:
        default = default_storage()
        return str(default), [describe(path) for path in place.experiments(default)] if default.exists() else []
    if is_elsewhere(given):
        from tuner.syncer import views

        shown, names = views.names_under(given)
        return shown, [_describe_elsewhere(child_of(given, name), name) for name in names]
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
    columns = ("trials", "pending", "running", "paused", "done", "failed", "checkpoints", "bytes", "best", "started_at")
    return dict.fromkeys(columns) | {"state": "", "lost": ""}


def describe(path: Path) -> dict[str, Any]:
    """One line's facts. A directory that cannot be read is a line that says so, not the end of the list."""
    row = _empty() | {"name": path.name, "path": str(path)}
    problems: list[str] = []
    paths = ExperimentPaths(path)
    try:
        state, journal = load_with_journal(paths, problems)
        driver = last_driver(paths, SystemClock().time())
        best = _best(state.trials, read_settings(paths))
    except UNREADABLE as error:
        row["state"] = row["lost"] = f"unreadable: {said(error)}"
        return row
    counts = state.counts
    cut_off = counts["RUNNING"] if driver.liveness in (Liveness.KILLED, Liveness.ENDED) else 0
    return row | {
        "trials": len(state.trials),
        "pending": counts["PENDING"] + cut_off,
        "running": counts["RUNNING"] - cut_off,
        "paused": counts["PAUSED"],
        "done": counts["TERMINATED"],
        "failed": counts["ERROR"],
        "checkpoints": state.checkpoint_count,
        "bytes": state.checkpoint_bytes,
        "best": best,
        "started_at": driver.record.since if driver.record is not None else None,
        "state": run_state.brief(driver, state.run_ended),
        "lost": "; ".join([*map(str, journal.damaged), *problems]),
    }


def _best(trials: Sequence[Trial], settings: dict[str, Any]) -> dict[str, Any] | None:
    """The best last value, by the experiment's own metric."""
    goal = goal_of(settings)
    if not goal.metrics or goal.mode not in ("min", "max"):
        return None
    metric = goal.metrics[0]
    found = scopes.best(trials, metric, goal.mode, "last")
    if found is None:
        return None
    return {"metric": metric, "value": scopes.score(found, metric, goal.mode, "last"), "trial": found.index}
