"""The data of parameters: each trial's values and metrics, which parameters matter, and the Pareto front."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from tuner.analysis.study import domain_of, study_of
from tuner.experiment.hostile import UNREADABLE
from tuner.search.domains import Categorical
from tuner.ui.columns import Column
from tuner.ui.seen import Seen
from tuner.ui.trial_columns import STATES, cell

WEIGHED = 1_000
"""Importances are told by so many trials at most, an even choice of all."""
FRONT = 20_000
"""Of more trials than that no front is drawn."""


def parameters(seen: Seen) -> dict[str, Any]:
    """All of it."""
    table = seen.picture.table
    every = table.all()
    value = None if seen.metric is None else every["last"].get(seen.metric)
    front = pareto(seen)
    return {
        **seen.head,
        "metric": seen.metric,
        "mode": seen.mode,
        "goals": seen.goals,
        **{name: every[name] for name in ("id", "index", "state", "config", "last")},
        "value": [None] * len(table) if value is None else value,
        "checkpoint": [_newest(seen, row) if row in front else None for row in range(len(table))],
        "domains": {key: _domain(seen, key, column) for key, column in table.config.columns.items()},
        "importance": importance(seen),
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
    if len(goals) < 2 or not all(columns) or len(table) > FRONT:
        return set()
    signed = []
    for goal, column in zip(goals, columns, strict=True):
        assert column is not None  # all are there
        column.extend_to(len(table))
        signed.append(column.numbers() * (-1.0 if goal["mode"] == "max" else 1.0))
    points = np.stack(signed, axis=1)
    rows = np.flatnonzero(~np.isnan(points).any(axis=1))
    order = rows[np.lexsort(points[rows].T[::-1])]
    front: list[int] = []
    kept = np.empty((0, points.shape[1]))
    for row in order.tolist():
        if not len(kept) or not ((kept <= points[row]).all(axis=1) & (kept < points[row]).any(axis=1)).any():
            front.append(row)
            kept = points[front]
    return set(front)


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
    """How much each parameter matters; None where that cannot be told.

    Source: Watanabe et al. 2023, "PED-ANOVA", as Optuna has it.
    """
    table = seen.picture.table
    done = np.flatnonzero(np.array(table.states) == STATES.index("TERMINATED"))
    if seen.metric is None or len(done) < 4:
        return None
    known = seen.live.weighed
    if seen.at is None and known is not None and known[0] <= len(done) < 1.1 * known[0]:
        found: dict[str, list[Any]] | None = known[1]
        return found
    made = _weighed(seen, done[:: max(len(done) // WEIGHED, 1)].tolist())
    if seen.at is None:
        seen.live.weighed = len(done), made
    return made


def _weighed(seen: Seen, rows: Sequence[int]) -> dict[str, list[Any]] | None:
    from tuner.analysis.plot_source import PlotSource
    from tuner.analysis.searched import importances

    state, settings, metric = seen.picture.state, seen.picture.settings, str(seen.metric)
    try:
        space = settings.get("space")
        trials = [state.trial(seen.picture.table.ids[row]) for row in rows]
        modes = [str(seen.mode)]
        study = study_of(trials, [metric], modes, space=space if isinstance(space, dict) else {}, name=seen.live.name)
        source = PlotSource(trials, [metric], modes, lambda: study)
        varied = [
            name
            for name, column in seen.picture.table.config.columns.items()
            if len({str(value) for value in column.some(rows) if value is not None}) > 1
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Optuna: which values it looks for is said to it, by their sign
            weights = importances(source, 0, varied) if varied else {}
    except (*UNREADABLE, RuntimeError):  # Optuna's own for what it cannot weigh
        return None
    return {"parameter": list(weights), "importance": list(weights.values())} if weights else None
