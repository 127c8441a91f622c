"""The data of the overview: how an experiment stands, its best trial, and what would be lost now."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from math import isinf
from typing import Any

import numpy as np

from tuner.experiment import driver_log, run_state
from tuner.experiment.continuing import how_to_continue, starter_of
from tuner.experiment.hostile import UNREADABLE
from tuner.experiment.liveness import LastDriver, Liveness
from tuner.experiment.outcome import ENDS, WORDS, failure
from tuner.experiment.replacing import standing
from tuner.experiment.trial import Trial
from tuner.ui.seen import Seen
from tuner.ui.trial_columns import STATES
from tuner.ui.views.limits import disk_budget, left, slots_of, time_budget

FAILURES = 50
AT_RISK = 20


def overview(seen: Seen) -> dict[str, Any]:
    """All of it."""
    picture, table = seen.picture, seen.picture.table
    return {
        **seen.head,
        "path": seen.live.source.address,
        **_history(seen),
        "problems": picture.problems,
        "metric": seen.metric,
        "mode": seen.mode,
        "metrics": table.metrics,
        "goals": seen.goals,
        "parameters": list(table.config.columns),
        "words": {status: WORDS[status] for status in STATES},
        **_checkpoints(seen),
        **changing(seen),
        "budget": disk_budget(seen),
        **_warnings(seen),
        **_orders(seen),
        "read_only": not seen.takes_orders,
        "loading": None,
    }


def changing(seen: Seen) -> dict[str, Any]:
    """The part that is another with each fact, or with time."""
    picture, table = seen.picture, seen.picture.table
    counts, running = table.counts(), [one for one in picture.state.unfinished if one.status == Trial.RUNNING]
    times = _Times(seen, running)
    total = picture.state.planned(picture.settings.get("trials_in_all"))
    finished = counts["TERMINATED"] + counts["ERROR"]
    return {
        "time": seen.time,
        "trouble": seen.live.error,
        **_standing(seen),
        "counts": counts,
        "trials": len(table),
        "total": total,
        "failed": counts["ERROR"],
        "failures": _failures(seen),
        "best": best(seen),
        "results": int(np.array(table.integers["iteration"]).sum()),
        "results_per_minute": picture.points.per_minute(times.until, times.since) if times.has_rate else None,
        "started_at": times.began,
        "elapsed_s": times.elapsed,
        **left(seen, finished, total, times.until if times.goes_on else None),
        "time_budget": time_budget(seen),
        "slots": {"used": len(running), "limit": slots_of(seen)},
        **_at_risk(seen, times.until),
    }


def best(seen: Seen) -> dict[str, Any] | None:
    """The best trial by its last value; None: none has one."""
    table = seen.picture.table
    row = table.best()
    if row is None or seen.metric is None:
        return None
    column = table.last.columns[seen.metric]
    value = column.get(row)
    beyond = float(column.numbers()[row]) if value is None else 0.0
    told: dict[str, Any] = {
        "id": table.ids[row],
        "index": table.integers["index"][row],
        "name": table.names[row],
        "value": value,
        "said": str(beyond) if isinf(beyond) else None,  # JSON has no infinity
        "iteration": table.integers["iteration"][row],
        "state": STATES[table.states[row]],
        "config": {name: column.get(row) for name, column in table.config.columns.items()},
        "checkpoint": None,
    }
    try:
        record = seen.picture.state.trial(table.ids[row]).latest_checkpoint
    except UNREADABLE:
        return told
    if record is not None:
        told["checkpoint"] = {
            "name": record.ref.name,
            "iteration": record.iteration,
            "bytes": record.bytes,
            "copies": record.copies,
            "here": record.here,
        }
    return told


def _history(seen: Seen) -> dict[str, Any]:
    """How far back the slider goes."""
    index = seen.live.known_index
    if index is None:
        return {"first_seq": seen.picture.points.begun_after, "first_at": None, "history_note": None}
    note = "what was before that is not recorded any more" if index.begins_after else None
    return {"first_seq": index.begins_after, "first_at": index.since, "history_note": note}


def _orders(seen: Seen) -> dict[str, Any]:
    words = seen.live.source.words if seen.takes_orders and seen.at is None else ()
    return {"orders": bool(words), "order_words": list(words)}


def brief(seen: Seen) -> dict[str, Any]:
    """What the list of experiments says of one."""
    started = np.array(seen.picture.table.floats["started_at"])
    began = None if np.isnan(started).all() else float(np.nanmin(started))
    return {"state": _standing(seen)["state"], "trials": len(seen.picture.table), "started_at": began}


class _Times:
    """When it began, and until when it is looked at: now, or when a dead driver was last heard of."""

    def __init__(self, seen: Seen, running: list[Trial]) -> None:
        table = seen.picture.table
        started = np.array(table.floats["started_at"])
        self.began = None if np.isnan(started).all() else float(np.nanmin(started))
        lives = seen.at is None and seen.live.driver is not None and _may_live(seen.live.driver)
        known = seen.last_heard_of if seen.at is None else seen.time
        self.until = seen.now if running and lives else known or seen.now
        self.elapsed = 0.0 if self.began is None else max(self.until - self.began, 0.0)
        self.goes_on = bool(running and lives)
        self.has_rate = lives or seen.at is not None
        record = seen.live.driver.record if seen.at is None and seen.live.driver is not None else None
        self.since = max(self.began or 0.0, record.since if record else 0.0)
        """When the driver began that runs it now, or did so last."""


def _may_live(driver: LastDriver) -> bool:
    return driver.liveness in (Liveness.RUNNING, Liveness.UNKNOWN)


def _standing(seen: Seen) -> dict[str, Any]:
    state, driver = seen.picture.state, seen.live.driver
    why = state.run_ended
    if seen.at is not None or driver is None:
        text = "as it was" if why is None else ENDS.get(why, why)
        return {"state": text, "liveness": "unknown", "run_ended": why, "hint": []}
    source = seen.live.source
    resume = how_to_continue(source.address, starter_of(source.paths, seen.picture.settings))
    hint = run_state.to_go_on(driver, why, resume, saved=state.checkpoint_count > 0)
    if not len(seen.picture.table):
        hint = [*hint, "no trial yet: the first one shows here as soon as the driver has made it"]
    words = {Liveness.RUNNING: "running", Liveness.ENDED: "ended", Liveness.KILLED: "killed"}
    return {
        "state": run_state.text(driver, why),
        "liveness": words.get(driver.liveness, "unknown"),
        "run_ended": why,
        "hint": hint,
    }


def _failures(seen: Seen) -> dict[str, list[Any]]:
    table = seen.picture.table
    rows = np.flatnonzero(np.array(table.states) == STATES.index(Trial.ERROR))
    at = np.array(table.floats["ended_at"])[rows]
    newest = rows[np.argsort(-np.nan_to_num(at), kind="stable")][:FAILURES]
    found: dict[str, list[Any]] = {"id": [], "index": [], "at": [], "said": []}
    for row in newest.tolist():
        found["id"].append(table.ids[row])
        found["index"].append(table.integers["index"][row])
        found["at"].append(table.floats["ended_at"][row])
        try:
            found["said"].append(failure(seen.picture.state.trial(table.ids[row])))
        except UNREADABLE:
            found["said"].append(table.said[row])
    return found


def _at_risk(seen: Seen, now: float) -> dict[str, Any]:
    """What a loss of this machine would cost: the age of the newest copy of each trial that has not ended."""
    rows = []
    unsaved = 0.0
    for trial in seen.picture.state.unfinished:
        if trial.started_at is None or not trial.iteration:
            continue
        until = now if trial.status == Trial.RUNNING else trial.last_heard_of or now
        elsewhere = [record.saved_at for record in trial.checkpoints if record.copies]
        kept = [record.saved_at for record in trial.checkpoints]
        newest = max(elsewhere, default=None)
        rows.append((max(until - (newest or trial.started_at), 0.0), trial, newest))
        unsaved = max(unsaved, max(until - max(kept, default=trial.started_at), 0.0))
    rows.sort(key=lambda row: -row[0])
    return {
        "at_risk_s": rows[0][0] if rows else 0.0,
        "at_risk": {
            "id": [trial.trial_id for _, trial, _ in rows[:AT_RISK]],
            "index": [trial.index for _, trial, _ in rows[:AT_RISK]],
            "loss_s": [loss for loss, _, _ in rows[:AT_RISK]],
            "newest_copy_at": [newest for _, _, newest in rows[:AT_RISK]],
        },
        "unsaved_s": unsaved,
    }


def _checkpoints(seen: Seen) -> dict[str, Any]:
    state = seen.picture.state
    waiting = _to_copy(state.unfinished) if seen.picture.settings.get("upload_dir") else []
    return {
        "checkpoints": {
            "kept": state.checkpoint_count,
            "bytes": state.checkpoint_bytes,
            "to_copy": len(waiting),
            "bytes_to_copy": sum(waiting),
            "pinned": len(state.pinned),
        },
        "disk": _disk(seen),
    }


def _to_copy(trials: Iterable[Trial]) -> list[int]:
    return [record.bytes for trial in trials for record in trial.checkpoints if not record.copies]


def _disk(seen: Seen) -> dict[str, int] | None:
    if seen.at is not None or not seen.live.source.is_local:
        return None
    try:
        used = shutil.disk_usage(seen.picture.root)
    except OSError:
        return None
    return {"free": used.free, "total": used.total}


def _warnings(seen: Seen) -> dict[str, Any]:
    """What its drivers warned of, and what ended the last one."""
    driver, state = seen.live.driver, seen.picture.state
    try:
        warned = [line for line in driver_log.read(standing(seen.live.source.paths)) if line.is_warning]
    except UNREADABLE:
        warned = []
    told = [line for line in warned if not line.ended]
    error = None
    if driver is not None and driver.liveness is Liveness.ENDED and state.run_ended in (None, "failed"):
        error = driver_log.what_ended(warned, driver.record.since if driver.record else 0.0)
    last = told[-1].text[:500] if told else None
    return {"warnings": len(told), "last_warning": last, "error": error if seen.at is None else None}
