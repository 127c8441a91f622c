"""What happened last, result by result, for pages that lost their connection for a while."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import isfinite
from typing import Any

from trainables import tagged
from trainables.metrics import as_score, lookup, metric_names
from tuner.analysis.reported import AUTOMATIC
from tuner.experiment import events as ev
from tuner.experiment.hostile import UNREADABLE

KEPT = 20_000
"""Results of which a page that comes back is told one by one."""

MINUTE_S = 60.0
FEW = 10
"""A rate counts so many results at least, however long they took."""


@dataclass(frozen=True, slots=True)
class Point:
    """One result."""

    seq: int
    trial: str
    iteration: int
    time: float | None
    at: float | None
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class Voided:
    """Results of a trial after an iteration do not stand any more."""

    seq: int
    trial: str
    after: int


def point_of(seq: int, fact: ev.ResultReported) -> Point:
    """A result as numbers; what is no number, or cannot be read, is left out."""
    try:
        metrics = tagged.loads(bytes(fact.metrics))
        names = metric_names(metrics)
        values = {
            name: score
            for name in names
            if name not in AUTOMATIC and (score := as_score(lookup(metrics, name))) is not None
        }
        time, at = as_score(metrics.get("time_total_s")), as_score(metrics.get("timestamp"))
    except UNREADABLE:
        return Point(seq, fact.trial, fact.iteration, None, None, {})
    return Point(seq, fact.trial, fact.iteration, time, at, values)


class PointLog:
    """The newest points, in the order of the journal.

    Args:
        since: the number of the fact after which it begins.
    """

    def __init__(self, since: int) -> None:
        self.begun_after = self.kept_from = since
        """What came after that fact is all here."""
        self._log: deque[Point | Voided] = deque()

    def add(self, entry: Point | Voided) -> None:
        self._log.append(entry)
        while len(self._log) > KEPT:
            self.kept_from = self._log.popleft().seq

    def since(self, seq: int) -> list[Point | Voided]:
        """What came after that fact."""
        found: list[Point | Voided] = []
        for entry in reversed(self._log):
            if entry.seq <= seq:
                break
            found.append(entry)
        return found[::-1]

    def per_minute(self, now: float, since: float = 0.0) -> float | None:
        """Results per minute: of the last 60 s or of the last `FEW` results, whichever is longer.

        None: too few results have a time.

        Args:
            since: when the driver began; results before that do not count.
        """
        every = sorted(entry.at for entry in self._log if isinstance(entry, Point) and entry.at is not None)
        times = [at for at in every if at >= int(since)]  # a result tells whole seconds
        begun = since
        if times == every and times and (self.kept_from or not since):
            begun = times.pop(0)  # those before it are not here
        if not times:
            return None
        if len(times) > FEW and (longer := min(times[-FEW - 1], now - MINUTE_S)) > begun:
            begun, times = longer, [at for at in times if at > longer]
        return len(times) * MINUTE_S / max(now - begun, 1.0)


def as_columns(entries: list[Point | Voided]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(results, void) as columns; a result that became void within them is not among them."""
    points: list[Point] = []
    void: list[Voided] = []
    for entry in entries:
        if isinstance(entry, Point):
            points.append(entry)
        else:
            points = [one for one in points if one.trial != entry.trial or one.iteration <= entry.after]
            void.append(entry)
    names = dict.fromkeys(name for point in points for name in point.values)
    results = {
        "id": [point.trial for point in points],
        "iteration": [point.iteration for point in points],
        "time": [point.time for point in points],
        "at": [point.at for point in points],
        "values": {name: [_finite(point.values.get(name)) for point in points] for name in names},
    }
    return results, {"id": [one.trial for one in void], "after": [one.after for one in void]}


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None
