"""The data of machines: which trial ran where and when, and the backlog of copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Any

import numpy as np

from trainables import tagged
from trainables.metrics import as_score
from tuner.analysis.spans import spans_of
from tuner.experiment.hostile import UNREADABLE
from tuner.experiment.liveness import Liveness
from tuner.experiment.trial import Trial
from tuner.ui.seen import Seen
from tuner.ui.trial_columns import STATES
from tuner.ui.views.limits import slots_of

TRIALS = 1_000
"""The newest so many have spans."""
SPANS = 5_000
OF_TRIAL = 50
"""Its newest ones."""
_NAMES = ("id", "index", "host", "pid", "start", "end", "what", "said")
_Stretch = tuple[float, float | None, str, str]
"""Start, end (None: it goes on), what, and that in words."""


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
    until = seen.time or seen.now
    for row in sorted(newest):
        try:
            trial = seen.picture.state.trial(table.ids[row])
            spans = list(_cut(_lived(seen, trial, until), sorted(_saved(trial), key=lambda save: save[0])))
            pid = trial.last_result.get("pid")
        except UNREADABLE:
            continue
        where = (table.ids[row], table.integers["index"][row], table.hosts[row] or None, pid)
        for span in spans:
            for name, value in zip(_NAMES, (*where, *span), strict=True):
                found[name].append(value)
    return {name: values[-SPANS:] for name, values in found.items()}


def _lived(seen: Seen, trial: Trial, until: float) -> Iterator[_Stretch]:
    """When it held a slot, or what it held was lost with its driver; what goes on has no end."""
    spans = list(spans_of(trial, until))[-OF_TRIAL:]
    driver = seen.live.driver if seen.at is None else None
    is_lost = driver is not None and driver.liveness is Liveness.KILLED
    for span in spans:
        what = "lost" if span.why == "lost" else span.kind
        if what not in ("running", "lost"):
            continue  # it holds no slot, and maybe no driver lives
        last = span is spans[-1]
        runs = last and trial.status == Trial.RUNNING
        rests = last and bool(trial.rests) and trial.rests[-1].until is None and not trial.is_finished()
        yield span.start, None if rests or (runs and not is_lost) else span.end, what, span.said
        if runs and is_lost:
            yield span.end, None, "lost", "lost: its driver was killed"


def _saved(trial: Trial) -> Iterator[_Stretch]:
    """How long each checkpoint that is kept took, from its result on, which is told in whole seconds."""
    for record in trial.checkpoints[-OF_TRIAL:]:
        reported = as_score(record.metrics.get("timestamp"))
        if reported is not None:
            yield min(reported, record.saved_at), record.saved_at, "saving", f"saving: {record.ref.name}"
    for iteration, (raw, _) in trial.unsaved.items():
        reported = as_score((tagged.loads(bytes(raw)) or {}).get("timestamp"))
        if reported is not None:
            yield reported, None, "saving", f"saving: iteration {iteration}"


def _cut(lived: Iterable[_Stretch], saves: Sequence[_Stretch]) -> Iterator[_Stretch]:
    """What it lived through, in which it saved for a while: one after another."""
    for start, end, what, said in lived:
        last = inf if end is None else end
        for begun, saved, saving, name in saves if what == "running" else ():
            begun, over = max(begun, start), last if saved is None else min(saved, last)
            if over <= begun:
                continue
            if begun > start:
                yield start, begun, what, said
            yield begun, None if over == inf else over, saving, name
            start = over
        if start < last:
            yield start, end, what, said


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
