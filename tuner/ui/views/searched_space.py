"""The data of parameters: each trial's values and metrics, which parameters matter, and the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from trainables.dominance import first_front
from tuner.analysis.study import domain_of
from tuner.experiment.hostile import UNREADABLE
from tuner.search.domains import Categorical
from tuner.ui.columns import Column
from tuner.ui.seen import Seen
from tuner.ui.trial_columns import STATES, cell
from tuner.ui.weighing import encoded, weighed_beside

WEIGHED = 1_000
"""Importances are told by so many trials at most, an even choice of all."""
FRONT = 20_000
"""Of more trials than that no front is drawn."""
WIDE_FRONT = 5_000
"""The same where there are more than two goals: it takes longer to find."""


def parameters(seen: Seen, weights: dict[str, list[Any]] | None) -> dict[str, Any]:
    """All of it.

    Args:
        weights: as `importance` tells them.
    """
    table = seen.picture.table
    every = table.all()
    value = None if seen.metric is None else every["last"].get(seen.metric)
    front = pareto(seen)
    return {
        **seen.head,
        "metric": seen.metric,
        "mode": seen.mode,
        "goals": {name: [goal[name] for goal in seen.goals] for name in ("metric", "mode")},
        **{name: every[name] for name in ("id", "index", "state", "config", "last")},
        "value": [None] * len(table) if value is None else value,
        "checkpoint": [_newest(seen, row) if row in front else None for row in range(len(table))],
        "domains": {key: _domain(seen, key, column) for key, column in table.config.columns.items()},
        "importance": weights,
        "pareto": _front(seen, sorted(front)) if len(seen.goals) > 1 else None,
    }


def _newest(seen: Seen, row: int) -> str | None:
    try:
        record = seen.picture.state.trial(seen.picture.table.ids[row]).latest_checkpoint
    except UNREADABLE:
        return None
    return None if record is None else record.ref.name


def _front(seen: Seen, rows: Sequence[int]) -> dict[str, list[Any]]:
    return {"id": [seen.picture.table.ids[row] for row in rows], "checkpoint": [_newest(seen, row) for row in rows]}


def pareto(seen: Seen) -> set[int]:
    """The rows that no other one beats in all goals."""
    table, goals = seen.picture.table, seen.goals
    columns = [table.last.columns.get(goal["metric"]) for goal in goals]
    if len(goals) < 2 or not all(columns) or len(table) > (FRONT if len(goals) == 2 else WIDE_FRONT):
        return set()
    signed = []
    for goal, column in zip(goals, columns, strict=True):
        assert column is not None  # all are there
        column.extend_to(len(table))
        signed.append((column.numbers() * (-1.0 if goal["mode"] == "max" else 1.0)).tolist())
    points = {row: point for row, point in enumerate(zip(*signed, strict=True)) if not any(map(math.isnan, point))}
    front = set(first_front(points.values()))
    return {row for row, point in points.items() if point in front}


def _domain(seen: Seen, key: str, column: Column) -> dict[str, Any]:
    space = seen.picture.settings.get("space")
    text = str(space.get(key, "")) if isinstance(space, dict) else ""
    domain = domain_of(text)
    told = {"kind": "choice", "log": False, "low": None, "high": None, "choices": None}
    if isinstance(domain, Categorical):
        return told | {"choices": [cell(value) for value in domain.categories]}
    if text.startswith("constant"):
        return told | {"kind": "constant"}
    low, high = getattr(domain, "lower", None), getattr(domain, "upper", None)
    if domain is not None:
        kind = "int" if type(low) is int else "float"
        return told | {"kind": kind, "log": bool(getattr(domain, "log", False)), "low": low, "high": high}
    if column.is_numeric:
        numbers = column.numbers()
        known = numbers[~np.isnan(numbers)]
        ends = {} if not len(known) else {"low": float(known.min()), "high": float(known.max())}
        return told | {"kind": "int" if column.is_whole else "float", **ends}
    tried = {str(value) for value in column.some(range(len(column))) if value is not None}
    return told | {"choices": sorted(tried)[:100]}


def importance(seen: Seen) -> dict[str, list[Any]] | None:
    """How much each parameter matters; None where that cannot be told. Takes a while: the experiment is not held.

    Source: Watanabe et al. 2023, "PED-ANOVA", as Optuna has it.
    """
    with seen.live.lock:
        table = seen.picture.table
        done = np.flatnonzero(np.array(table.states) == STATES.index("TERMINATED"))
        if seen.metric is None or len(done) < 4:
            return None
        known = seen.live.weighed
        if seen.at is None and known is not None and known[0] <= len(done) < 1.1 * known[0]:
            found: dict[str, list[Any]] | None = known[1]
            return found
        given = _weighable(seen, seen.metric, done[:: max(len(done) // WEIGHED, 1)].tolist())
    weights = weighed_beside(given) if given else None
    made: dict[str, list[Any]] | None = None
    if weights:
        made = {"parameter": list(weights), "importance": list(weights.values())}
    if seen.at is None:
        seen.live.weighed = len(done), made
    return made


def _weighable(seen: Seen, metric: str, rows: Sequence[int]) -> bytes | None:
    """What importances are told of; None where that is nothing."""
    space = seen.picture.settings.get("space")
    known = {str(key): str(text) for key, text in space.items()} if isinstance(space, dict) else {}
    varied = [
        name
        for name, column in seen.picture.table.config.columns.items()
        if len({str(value) for value in column.some(rows) if value is not None}) > 1
    ]
    try:
        trials = [seen.picture.state.trial(seen.picture.table.ids[row]) for row in rows]
        return encoded(trials, metric, str(seen.mode), known, varied) if varied else None
    except UNREADABLE:
        return None
