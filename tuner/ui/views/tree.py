"""The data of the lineage: exploits, forks, restarts and retries as one tree."""

from __future__ import annotations

from typing import Any

import numpy as np

from trainables import tagged
from trainables.result_history import flatten
from tuner.experiment.hostile import UNREADABLE
from tuner.experiment.trial import Trial
from tuner.inspection.lineage import edges_of
from tuner.ui.seen import Seen
from tuner.ui.trial_columns import STATES, cell

NODES = 2_000
"""Of more trials only those that went on from something are shown."""
_EDGE = ("child", "parent", "kind", "iteration", "checkpoint", "at", "why", "changed")


def tree(seen: Seen) -> dict[str, Any]:
    """All of it."""
    table = seen.picture.table
    rows = range(len(table)) if len(table) <= NODES else _restless(seen)
    trials: list[Trial] = []
    edges: list[dict[str, Any]] = []
    for row in rows:
        try:
            trial = seen.picture.state.trial(table.ids[row])
            made = edges_of([trial], seen.picture.state.orders)
        except UNREADABLE:
            continue  # its row says so
        trials.append(trial)
        edges += made
    shown = {*(edge["trial"] for edge in edges), *(edge["from"] for edge in edges)}
    if len(table) <= NODES:
        shown |= set(table.ids)
    nodes = [table.row_of[trial_id] for trial_id in shown if trial_id in table.row_of]
    return {
        **seen.head,
        "nodes": _nodes(seen, sorted(nodes)),
        "edges": {name: [_edge(seen, edge)[name] for edge in edges] for name in _EDGE},
        "schedules": {trial.trial_id: _schedule(trial) for trial in trials if trial.clones},
    }


def _restless(seen: Seen) -> list[int]:
    """The rows of trials that have had more than one attempt, or are under way."""
    attempts = np.array(seen.picture.table.integers["attempt"])
    found: list[int] = np.flatnonzero(attempts > 1)[-5 * NODES :].tolist()
    forks = [seen.picture.table.row_of[one.trial_id] for one in seen.picture.state.made_for.values()]
    return sorted({*found, *forks})


def _edge(seen: Seen, edge: dict[str, Any]) -> dict[str, Any]:
    changed = [[key, cell(was), cell(now)] for key, (was, now) in edge["changed"].items()]
    why = edge["why"]
    if edge["kind"] == "exploit":  # how the attempt before ended, paused for it, says less
        row = seen.picture.table.row_of.get(edge["from"])
        donor = edge["from"] if row is None else seen.picture.table.integers["index"][row]
        at = "" if edge["from_iteration"] is None else f" at {edge['from_iteration']}"
        why = f"exploit of trial {donor}{at}"
    return {**edge, "child": edge["trial"], "parent": edge["from"], "changed": changed, "why": why}


def _nodes(seen: Seen, rows: list[int]) -> dict[str, list[Any]]:
    table = seen.picture.table
    column = None if seen.metric is None else table.last.columns.get(seen.metric)
    return {
        "id": [table.ids[row] for row in rows],
        "index": [table.integers["index"][row] for row in rows],
        "state": [STATES[table.states[row]] for row in rows],
        "said": [table.said[row] for row in rows],
        "iteration": [table.integers["iteration"][row] for row in rows],
        "value": [None if column is None else column.get(row) for row in rows],
    }


def _schedule(trial: Trial) -> list[list[Any]]:
    """Of a clone: from which of its iterations on which config held, as far as its changes tell."""
    loaded = tagged.loads(bytes(trial.raw_config))
    config = flatten(loaded) if isinstance(loaded, dict) else {}
    now = {str(key): cell(value) for key, value in config.items()}
    steps: list[list[Any]] = []
    for clone in reversed(trial.clones):
        steps.append([clone.iteration, dict(now)])
        for key, (was, _) in clone.changed.items():
            now[str(key)] = cell(was)
    return [[0, now], *reversed(steps)]
