"""Budgets of results, time and cost, of a trial or of the experiment."""

from __future__ import annotations

import datetime
import math

import pytest

from tuner.clock import VirtualClock
from tuner.stopper import (
    CostStopper,
    MaximumIterationStopper,
    MaximumResultsStopper,
    TimeoutStopper,
    TrialTimeoutStopper,
    as_stopper,
)


def test_d26_trials_are_counted_apart() -> None:
    stopper = MaximumIterationStopper(2)
    assert [bool(stopper(name, {})) for name in "abab"] == [False, False, True, True]


def test_time_is_counted_from_the_first_look_and_goes_on_after_a_resume() -> None:
    clock = VirtualClock()
    stopper = as_stopper([TimeoutStopper(datetime.timedelta(minutes=1)), {"training_iteration": 5}], clock=clock)
    assert stopper is not None
    clock.advance(1000)
    assert not stopper.stop_all()
    clock.advance(40)
    assert not stopper.stop_all()
    state = stopper.get_state()
    clock.advance(5000)  # not running
    again = as_stopper([TimeoutStopper(60), {"training_iteration": 5}], clock=clock)
    assert again is not None
    again.set_state(state)
    assert not again.stop_all()
    clock.advance(19.9)
    assert not again.stop_all()
    clock.advance(0.2)
    assert again.stop_all()
    assert not again("t", {"training_iteration": 4})


def test_a_timeout_without_a_clock_takes_the_systems() -> None:
    assert not TimeoutStopper(3600).stop_all()
    assert TimeoutStopper(0).stop_all()


@pytest.mark.parametrize("count", [1, 5])
def test_d26_a_budget_of_n_results_of_all_trials_is_spent_with_the_nth(count: int) -> None:
    stopper = MaximumResultsStopper(count)
    asked = [stopper(f"t{i % 3}", {}) for i in range(8)]
    assert asked == [i + 1 >= count for i in range(8)]
    assert stopper.stop_all()


def test_a_trials_time_is_that_of_all_its_attempts() -> None:
    stopper = TrialTimeoutStopper(datetime.timedelta(minutes=1))
    spent = [("a", 30.0), ("b", 59.9), ("a", 60.0), ("b", None), ("b", 61)]
    assert [bool(stopper(trial, {"time_total_s": s})) for trial, s in spent] == [False, False, True, False, True]
    assert not stopper("a", {}) and not stopper.stop_all()


def test_a_cost_is_added_up_over_all_trials_or_per_trial() -> None:
    story = [("a", 2.0), ("b", math.nan), ("b", 2.0), ("a", 1.0), ("b", None)]
    whole, each = CostStopper(4.0), CostStopper(3.0, per="trial")
    assert [bool(whole(trial, {"cost": cost})) for trial, cost in story] == [False, False, True, True, True]
    assert [bool(each(trial, {"cost": cost})) for trial, cost in story] == [False, False, False, True, False]
    assert whole.stop_all() and not each.stop_all()


def test_a_cumulative_cost_counts_what_was_added() -> None:
    story = [("a", 2.0), ("b", 1.0), ("a", 2.5), ("a", 1.0), ("b", 1.5)]  # a went back to a checkpoint once
    whole = CostStopper(4.0, "eval/usd", cumulative=True)
    each = CostStopper(2.5, "eval/usd", cumulative=True, per="trial")
    assert [bool(whole(trial, {"eval": {"usd": cost}})) for trial, cost in story] == [False, False, False, False, True]
    assert [bool(each(trial, {"eval": {"usd": cost}})) for trial, cost in story] == [False, False, True, True, False]
