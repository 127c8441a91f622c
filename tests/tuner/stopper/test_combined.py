"""Several stoppers as one, and one that stops nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tests.tuner.stopper.harness import results_until_stop
from tuner.stopper import (
    CombinedStopper,
    CostStopper,
    MaximumIterationStopper,
    NoopStopper,
)


class Trial(NamedTuple):
    """As much of one as a stopper looks at."""

    trial_id: str
    told: int


def test_a_stopper_that_stops_nothing() -> None:
    assert results_until_stop(NoopStopper()) == 101
    assert not NoopStopper().stop_all()


def test_all_of_a_combination_are_asked() -> None:
    stopper = CombinedStopper(MaximumIterationStopper(1), MaximumIterationStopper(2))
    assert [bool(stopper("t", {})), bool(stopper("t", {}))] == [True, True]
    assert stopper.get_state()["stoppers"][1] == {"count": {"t": 2}}
    assert not stopper.stop_all()


@pytest.mark.parametrize("resumed", [False, True])
def test_after_a_rollback_only_those_that_go_back_hear_what_comes_again(resumed: bool) -> None:
    def made() -> tuple[CombinedStopper, CostStopper]:
        cost = CostStopper(100.0)
        return CombinedStopper(MaximumIterationStopper(5), cost), cost

    def result(iteration: int) -> dict[str, Any]:
        return {"training_iteration": iteration, "cost": 1.0}

    stopper, cost = made()
    assert [bool(stopper("a", result(iteration))) for iteration in (1, 2, 3, 4)] == [False] * 4
    stopper.on_rollback(Trial("a", 4), 2)
    if resumed:
        state = stopper.get_state()
        stopper, cost = made()
        stopper.set_state(state)
    assert [bool(stopper("a", result(iteration))) for iteration in (3, 4, 5)] == [False, False, True]
    assert [bool(stopper("b", result(iteration))) for iteration in (1, 2)] == [False, False]
    assert cost.get_state()["all"] == 9.0


def test_a_budget_among_several_is_told_where_trials_begin() -> None:
    cost = CostStopper(100.0, cumulative=True)
    stopper = CombinedStopper(NoopStopper(), CombinedStopper(cost))
    stopper("a", {"cost": 5.0})
    stopper.on_trial_start("a", {"cost": 3.0}, reused=False)
    stopper("a", {"cost": 6.0})
    assert cost.get_state()["all"] == 8.0


def test_a_state_without_rollbacks_is_gone_on_from() -> None:
    stopper = CombinedStopper(MaximumIterationStopper(2))
    stopper.set_state({"stoppers": [{"count": {"t": 1}}]})
    assert stopper("t", {"training_iteration": 2})
