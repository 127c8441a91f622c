"""The data of machines: which trial ran where and when, and the backlog of copies."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from tuner.analysis.spans import spans_of
from tuner.experiment.hostile import UNREADABLE
from tuner.experiment.trial import Trial
from tuner.ui.seen import Seen
from tuner.ui.trial_columns import STATES
from tuner.ui.views.overview import slots_of

TRIALS = 1_000
"""The newest so many have spans."""
SPANS = 5_000
_NAMES = ("id", "index", "host", "pid", "start", "end", "what", "said")


def machines(seen: Seen) -> dict[str, Any]:
    """All of it."""
    table = seen.picture.table
    running = np.flatnonzero(np.array(table.states) == STATES.index(Trial.RUNNING)).tolist()
    at_work = Counter(table.hosts[row] for row in running)
    trials, results = Counter(table.hosts), Counter[str]()
    for host, iterations in zip(table.hosts, table.integers["iteration"], strict=True):
        results[host] += iterations
    hosts = sorted(host for host in trials if host)
    return {
        **seen.head,
        "hosts": {
            "host": hosts,
            "running": [at_work[host] for host in hosts],
            "trials": [trials[host] for host in hosts],
            "results": [results[host] for host in hosts],
        },
        "spans": _spans(seen),
        **_copies(seen),
        "slots": {"used": len(running), "limit": slots_of(seen)},
    }


def _spans(seen: Seen) -> dict[str, list[Any]]:
    table = seen.picture.table
    started = np.array(table.floats["started_at"])
    newest = [row for row in np.argsort(-started, kind="stable")[:TRIALS].tolist() if started[row] == started[row]]
    found: dict[str, list[Any]] = {name: [] for name in _NAMES}
    now = seen.now
    for row in sorted(newest):
        try:
            trial = seen.picture.state.trial(table.ids[row])
            spans = list(spans_of(trial, now))
            pid = trial.last_result.get("pid")
        except UNREADABLE:
            continue
        for span in spans[-50:]:
            goes_on = trial.status == Trial.RUNNING and span is spans[-1]
            where = (span.trial_id, span.index, table.hosts[row] or None, pid)
            when = (span.start, None if goes_on else span.end)
            for name, value in zip(_NAMES, (*where, *when, span.kind, span.said), strict=True):
                found[name].append(value)
    return {name: values[-SPANS:] for name, values in found.items()}


def _copies(seen: Seen) -> dict[str, Any]:
    """What is not copied yet, and what lies where."""
    count = size = 0
    oldest: float | None = None
    places: dict[str, list[int]] = {}
    table = seen.picture.table
    wants = bool(seen.picture.settings.get("upload_dir"))
    for row in np.flatnonzero(np.array(table.integers["checkpoints"]) > 0).tolist() if wants else ():
        try:
            records = seen.picture.state.trial(table.ids[row]).checkpoints
        except UNREADABLE:
            continue
        for record in records:
            for place in record.copies:
                places.setdefault(place, []).append(record.bytes)
            if not record.copies:
                count, size = count + 1, size + record.bytes
                oldest = record.saved_at if oldest is None else min(oldest, record.saved_at)
    return {
        "backlog": {"count": count, "bytes": size, "oldest_at": oldest},
        "copies": {
            "place": list(places),
            "count": [len(sizes) for sizes in places.values()],
            "bytes": [sum(sizes) for sizes in places.values()],
        },
    }
