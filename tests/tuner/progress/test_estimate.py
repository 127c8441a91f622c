"""How long a run still takes: exact where trials are alike, wide where they are not, and nothing before it is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.progress.estimate import Pace


def paced(slots: int, durations: list[float]) -> tuple[Pace, float]:
    """Trials that ran side by side, each slot's one after another; and when the last of them ended."""
    pace, free = Pace(), [0.0] * slots
    events = []
    for number, took in enumerate(durations):
        slot = free.index(min(free))
        events += [(free[slot], 1, number), (free[slot] + took, 0, number)]
        free[slot] += took
    for now, begins, number in sorted(events):
        (pace.started if begins else pace.ended)(f"t{number}", now)
    return pace, max(free)


@given(st.integers(1, 8), st.integers(1, 10), st.floats(0.1, 1e5), st.integers(1, 5))
def test_of_trials_that_are_alike_it_is_exact(slots: int, rounds: int, took: float, more: int) -> None:
    pace, now = paced(slots, [took] * slots * rounds)
    left = pace.left(slots * more, now)
    assert left is not None and left.likely == pytest.approx(took * more)
    if slots * rounds > 1:
        assert left.most - left.likely == pytest.approx(0, abs=took * 1e-6)


@given(st.integers(1, 6), st.lists(st.floats(0.1, 1e4), min_size=1, max_size=20), st.integers(1, 50), st.floats(0, 1e4))
def test_it_is_never_negative_and_shrinks_with_what_is_left(
    slots: int, durations: list[float], unfinished: int, later: float
) -> None:
    pace, now = paced(slots, durations)
    left, less = pace.left(unfinished + 1, now), pace.left(unfinished, now)
    assert left is not None and less is not None
    assert 0 <= less.least <= less.likely <= less.most and less.likely <= left.likely * 1.5 + 1e-9
    pace.started("now", now)
    running = pace.left(unfinished, now + later)
    assert running is not None and 0 <= running.likely <= max(less.likely, max(durations)) + 1e-6


def test_what_a_trial_ran_before_it_paused_counts() -> None:
    pace = Pace()
    pace.started("a", 0)
    pace.rested("a", 4)
    pace.started("a", 100)
    pace.ended("a", 106)
    pace.started("b", 106)
    left = pace.left(1, 108)
    assert left is not None and left.likely == 8
    assert str(left) == "about 8.0 s left, a guess from 1 trial"


def test_nothing_is_said_before_a_trial_has_ended_and_after_all_have() -> None:
    pace = Pace()
    pace.started("a", 0)
    assert pace.left(3, 10) is None
    pace.ended("a", 10)
    pace.ended("never started", 10)
    assert pace.left(0, 10) is None


def test_how_sure_it_is_is_said() -> None:
    pace, now = paced(1, [50.0, 60.0, 70.0])
    assert str(pace.left(10, now)) == "about 10:00 min left (7:48 min to 12:11 min)"
