"""What a run may use and has used: disk, time, slots; and how long it still takes, as the terminal says it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.experiment.liveness import Liveness
from tuner.experiment.trial import Trial
from tuner.orders.settable import MAX_CONCURRENT, TIME_BUDGET
from tuner.progress.estimate import Took, time_left
from tuner.ui.seen import Seen


def disk_budget(seen: Seen) -> dict[str, Any] | None:
    """What checkpoints may take, and take; None: there is no limit, or an older version did not write it down."""
    limit = seen.picture.settings.get("checkpoint_budget")
    known = isinstance(limit, int) and not isinstance(limit, bool)
    return {"limit": limit, "kind": "bytes", "used": seen.picture.state.checkpoint_bytes} if known else None


def time_budget(seen: Seen) -> dict[str, Any] | None:
    """The seconds of one life of its driver, and those that the driver of now has spent; None: there is no limit."""
    limit = _limit(seen, TIME_BUDGET, "time_budget_s")
    driver = seen.live.driver
    if limit is None or driver is None or driver.record is None or seen.at is not None:
        return None
    if driver.liveness is not Liveness.RUNNING:
        return {"limit_s": limit, "used_s": None, "left_s": None}
    used = max(seen.now - driver.record.since, 0.0)
    return {"limit_s": limit, "used_s": used, "left_s": max(limit - used, 0.0)}


def slots_of(seen: Seen) -> int | None:
    """How many trials may run at once; None: no number is given."""
    limit = _limit(seen, MAX_CONCURRENT, "max_concurrent_trials")
    return int(limit) if limit else None


def _limit(seen: Seen, ordered: str, setting: str) -> float | None:
    change = seen.picture.state.changed.get(ordered)
    limit = seen.picture.settings.get(setting) if change is None else change.value
    return limit if isinstance(limit, (int, float)) and not isinstance(limit, bool) else None


def left(seen: Seen, finished: int, total: int | None, until: float | None) -> dict[str, Any]:
    """How long it still takes: by how long the trials took that have ended, as the terminal concludes it.

    Args:
        finished: how many have ended.
        total: how many there will be; None: no end is known.
        until: up to when those that run have run; None: nothing goes on.
    """
    nothing = dict.fromkeys(("left_s", "left_least_s", "left_most_s", "left_said"))
    table, state = seen.picture.table, seen.picture.state
    if total is None or until is None:
        return nothing
    begun, ended, rested = (np.array(values) for values in (*_times(seen), table.rested))
    seconds = (ended - begun - rested)[np.isfinite(ended) & np.isfinite(begun)]
    unfinished = max(total, len(table)) - finished
    if not len(seconds) or unfinished <= 0:
        return nothing
    mean = float(seconds.mean())
    took = Took(len(seconds), mean, float(seconds.std(ddof=1)) if len(seconds) > 1 else mean)
    going = [trial for trial in state.unfinished if trial.started_at is not None]
    running = sum(trial.status == Trial.RUNNING for trial in going)
    spent = [spent_s(trial, until) for trial in sorted(going, key=lambda trial: trial.status != Trial.RUNNING)]
    found = time_left(took, spent, unfinished, max(running, seen.picture.most_running))
    return {
        "left_s": found.likely,
        "left_least_s": found.least,
        "left_most_s": found.most,
        "left_said": str(found),
    }


def _times(seen: Seen) -> tuple[Any, Any]:
    floats = seen.picture.table.floats
    return floats["started_at"], floats["ended_at"]


def spent_s(trial: Trial, until: float) -> float:
    """Seconds in which it has run."""
    end = until
    for rest in trial.rests[-1:]:
        end = rest.since if rest.until is None else until
    rested = sum(rest.until - rest.since for rest in trial.rests if rest.until is not None)
    return max(end - (trial.started_at or end) - rested, 0.0)
