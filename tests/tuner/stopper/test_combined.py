"""Several stoppers as one, and one that stops nothing."""

from __future__ import annotations

from tests.tuner.stopper.harness import results_until_stop
from tuner.stopper import (
    CombinedStopper,
    MaximumIterationStopper,
    NoopStopper,
)


def test_a_stopper_that_stops_nothing() -> None:
    assert results_until_stop(NoopStopper()) == 101
    assert not NoopStopper().stop_all()


def test_all_of_a_combination_are_asked() -> None:
    stopper = CombinedStopper(MaximumIterationStopper(1), MaximumIterationStopper(2))
    assert [bool(stopper("t", {})), bool(stopper("t", {}))] == [True, True]
    assert stopper.get_state()["stoppers"][1] == {"count": {"t": 2}}
    assert not stopper.stop_all()
