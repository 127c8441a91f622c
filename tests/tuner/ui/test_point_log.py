"""The newest results of a run, and how many come per minute."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tuner.ui.point_log import Point, PointLog


@pytest.mark.parametrize(
    ("times", "now", "since", "rate"),
    [
        ([], 5.0, 1.0, None),
        (range(1001, 1011), 1010.0, 1000.0, 60),  # of 10 s, since it began
        ([1000, 1001], 1001.8, 1000.6, pytest.approx(100)),  # told in whole seconds
        (range(1001, 1011), 1100.0, 1000.0, 6),
        (range(1000, 2000), 1999.0, 1000.0, 60),  # of the last 60 s
        (range(0, 12000, 120), 11880.0, 1.0, 0.5),  # one in two minutes, right after one
        (range(0, 12000, 120), 11999.0, 1.0, pytest.approx(0.5, rel=0.1)),  # and before the next
        ([*range(0, 900), *range(2000, 2010)], 2010.0, 2000.0, 60),  # resumed: nothing before counts
        ([100, 160, 220], 220.0, 0.0, 1),  # nothing says when it began
    ],
)
def test_results_per_minute(times: Iterable[int], now: float, since: float, rate: float | None) -> None:
    log = PointLog(0)
    for seq, at in enumerate(times):
        log.add(Point(seq, "a", seq, None, at, {}))
    assert log.per_minute(now, since) == rate


def test_results_per_minute_of_a_run_whose_first_results_are_not_here() -> None:
    log = PointLog(7)
    log.add(Point(8, "a", 4, None, 5000, {}))
    assert log.per_minute(5030.0, since=1000.0) is None
    log.add(Point(9, "a", 5, None, 5030, {}))
    assert log.per_minute(5030.0, since=1000.0) == 2
