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
    story = [("a", 2.0), ("b", 1.0), ("a", 2.5), ("b", 1.25), ("a", 3.5)]
    whole = CostStopper(4.0, "eval/usd", cumulative=True)
    each = CostStopper(2.5, "eval/usd", cumulative=True, per="trial")
    assert [bool(whole(trial, {"eval": {"usd": cost}})) for trial, cost in story] == [False, False, False, False, True]
    assert [bool(each(trial, {"eval": {"usd": cost}})) for trial, cost in story] == [False, False, True, False, True]


def spent(stopper: CostStopper, *counted: float, trial: str = "a") -> float:
    """What was spent in all after a trial counted so far."""
    for cost in counted:
        stopper(trial, {"cost": cost})
    found: float = stopper.get_state()["all"]
    return found


def test_a_cumulative_cost_goes_on_from_the_checkpoint_that_an_attempt_starts_from() -> None:
    stopper = CostStopper(100.0, cumulative=True)
    assert spent(stopper, 1.0, 2.0, 4.0) == 4.0
    stopper.on_trial_start("a", {"cost": 2.0}, reused=False)  # back to the second result
    assert spent(stopper, 5.0) == 7.0
    stopper.on_trial_start("a", {"cost": 5.0, "loss": 1}, reused=False)  # it was paused
    assert spent(stopper, 6.0) == 8.0
    stopper.on_trial_start("a", {"cost": 40.0}, reused=False)  # a clone counts on from its donor's
    assert spent(stopper, 41.0) == 9.0
    stopper.on_trial_start("a", {}, reused=False)  # anew
    assert spent(stopper, 0.5) == 9.5


def test_a_cumulative_cost_below_the_last_one_was_counted_anew() -> None:
    stopper = CostStopper(100.0, cumulative=True)
    stopper.on_trial_start("a", {"loss": 1}, reused=False)  # the checkpoint does not say
    assert spent(stopper, 3.0, 4.0, 1.0, 2.5) == 6.5


@pytest.mark.parametrize("cumulative", [False, True])
def test_results_of_an_earlier_experiment_cost_nothing(cumulative: bool) -> None:
    stopper = CostStopper(100.0, cumulative=cumulative, per="trial")
    stopper.on_trial_start("a", {}, reused=True)
    assert spent(stopper, 5.0, 10.0) == 0.0
    stopper.on_trial_start("a", {"cost": 10.0}, reused=False)
    assert spent(stopper, 12.0) == (2.0 if cumulative else 12.0)


def test_what_is_no_cost_costs_nothing() -> None:
    stopper = CostStopper(4.0)
    assert spent(stopper, math.nan, -3.0) == 0.0
    assert not stopper("a", {}) and not stopper("a", {"cost": "3"})
    assert stopper("a", {"cost": math.inf}) and stopper.stop_all()


def test_a_state_that_knew_no_checkpoints_is_gone_on_from() -> None:
    stopper = CostStopper(5.0, cumulative=True)
    stopper.set_state({"all": 4.0, "spent": {"a": 3.0, "b": 1.0}})
    assert not stopper("a", {"cost": 3.5}) and stopper("b", {"cost": 1.5})
