"""The data of a comparison: two experiments, each with its best so far over its results and over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tuner.ui.seen import Seen
from tuner.ui.views.overview import best

POINTS = 2_000


def comparison(seen: Seen, other: Seen | None, names: Sequence[str]) -> dict[str, Any]:
    """Both sides.

    Args:
        names: of the experiments that there are besides.
    """
    head = {**seen.head, "names": list(names), "with": None, "metric": seen.metric, "mode": seen.mode}
    if other is None:
        return head | {"sides": [], "parameters": {"key": [], "left": [], "right": []}}
    sides = []
    for one in (seen, other):
        with one.live.lock:
            sides.append(_side(one))
    left, right = ((side["best"] or {}).get("config", {}) for side in sides)
    keys = list({**left, **right})
    pairs = {"key": keys, "left": [left.get(key) for key in keys], "right": [right.get(key) for key in keys]}
    return head | {"with": other.live.name, "sides": sides, "parameters": pairs}


def _side(seen: Seen) -> dict[str, Any]:
    found = best(seen)
    return {
        "name": seen.live.name,
        "metric": seen.metric,
        "mode": seen.mode,
        "trials": len(seen.picture.table),
        "counts": seen.picture.table.counts(),
        "best": None if found is None else {key: found[key] for key in ("id", "index", "value", "said", "config")},
        "curve": best_so_far(seen),
    }


def best_so_far(seen: Seen) -> dict[str, list[Any]]:
    """The best last value of the trials that had ended, after so many results and so many seconds."""
    table = seen.picture.table
    column = None if seen.metric is None else table.last.columns.get(seen.metric)
    if column is None:
        return {"results": [], "time_s": [], "value": []}
    column.extend_to(len(table))
    values, ended = column.numbers(), np.array(table.floats["ended_at"])
    results = np.array(table.integers["iteration"])
    began = np.nanmin(np.array(table.floats["started_at"])) if len(table) and not np.isnan(ended).all() else 0.0
    rows = np.flatnonzero(~np.isnan(values) & ~np.isnan(ended))
    rows = rows[np.argsort(ended[rows], kind="stable")]
    reached = np.maximum.accumulate(values[rows]) if seen.mode == "max" else np.minimum.accumulate(values[rows])
    steps = steps_of(reached)
    kept = np.unique(np.append(steps[-POINTS:], len(rows) - 1)) if len(rows) else steps
    return {
        "results": np.cumsum(results[rows])[kept].tolist(),
        "time_s": (ended[rows][kept] - began).tolist(),
        "value": reached[kept].tolist(),
    }


def steps_of(values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Where a value is another than the one before it; of infinities there is no difference to look at."""
    return np.flatnonzero(values != np.append(np.nan, values[:-1])[: len(values)])
