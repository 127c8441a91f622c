"""The data of curves: every result of chosen trials, those that a rollback made void marked as such."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

import numpy as np

from tuner.experiment.trial import Trial
from tuner.ui.seen import Seen
from tuner.ui.trial_columns import STATES
from tuner.ui.trial_story import TrialStory

TRIALS = 50
"""As many are shown where nobody has chosen any."""
MOST = 2_000


def chosen(seen: Seen, given: str, limit: str) -> list[str]:
    """The trials that are shown: those that were asked for, else those that run and the best."""
    table = seen.picture.table
    if given:
        return [trial_id for trial_id in dict.fromkeys(given.split(",")) if trial_id in table.row_of][:MOST]
    count = min(int(limit), MOST) if limit.isdecimal() else TRIALS
    running = [trial.trial_id for trial in seen.picture.state.unfinished if trial.status == Trial.RUNNING]
    column = None if seen.metric is None else table.last.columns.get(seen.metric)
    if column is None:
        others = table.ids[-count:]
    else:
        column.extend_to(len(table))
        values = column.numbers() * (-1 if seen.mode == "max" else 1)
        others = [table.ids[row] for row in np.argsort(values, kind="stable")[:count] if not np.isnan(values[row])]
    return list(dict.fromkeys([*running[:count], *others]))[:count]


def curves(seen: Seen, trials: Sequence[str], metric: str | None, story: Callable[[str], TrialStory]) -> dict[str, Any]:
    """The points of those trials, one after another."""
    name = metric or seen.metric or next(iter(seen.picture.table.metrics), "")
    lists: dict[str, list[Any]] = {key: [] for key in ("id", "index", "state", "start", "count")}
    points: dict[str, list[Any]] = {key: [] for key in ("iteration", "time", "at", "value", "void")}
    whole = True
    table = seen.picture.table
    for trial_id in trials:
        told = story(trial_id)
        whole = whole and told.is_whole
        start = len(points["value"])
        for point, void in zip(told.points, told.void, strict=True):
            value = point.values.get(name)
            if value is None:
                continue
            points["iteration"].append(point.iteration)
            points["time"].append(point.time)
            points["at"].append(point.at)
            points["value"].append(value if isfinite(value) else None)
            points["void"].append(int(void))
        row = table.row_of[trial_id]
        count = len(points["value"]) - start
        about = (trial_id, table.integers["index"][row], STATES[table.states[row]], start, count)
        for key, told_of in zip(lists, about, strict=True):
            lists[key].append(told_of)
    note = None if whole else "earlier results of some trials are not recorded any more"
    return {
        **seen.head,
        "metric": name,
        "metrics": table.metrics,
        "trials": lists,
        "points": points,
        "note": note,
    }
