"""What configs are expected to cost: learned from what trials have cost, bounded, and a state that is all of it."""

from __future__ import annotations

import math
from typing import Any

import cloudpickle
import numpy as np
import pytest

import tuner as tune
from tuner.search.auto import modelled_space
from tuner.search.costs import Costs
from tuner.search.cube import Array, Cube
from tuner.search.curves import Curves

SPACE: dict[str, Any] = {
    "x": tune.uniform(0, 1),
    "kind": tune.choice([{"name": "small"}, {"name": "large", "width": tune.lograndint(1, 100)}]),
}


def cube() -> Cube:
    return Cube(list(modelled_space(SPACE).dimensions.values()))


def paid(numbers: Array) -> float:
    """What a result of a config costs: small ones 1, large ones 100 times their width."""
    return 1.0 if numbers[1] == 0 else 100.0 * numbers[2]


def learned(trials: int) -> tuple[Costs, Curves, Array]:
    space, curves = cube(), Curves(9)
    rows = space.numbers(np.random.default_rng(1).random((trials, 3)))
    costs = Costs(space, curves)
    for number, row in enumerate(rows):
        curves.add(str(number), space.point(row))
        for _ in range(1 + number % 3):
            costs.note(str(number), paid(row))
        if number % 10 == 9:
            costs.learn()
    return costs, curves, rows


def test_what_an_iteration_costs_is_learned_over_choices_and_branches() -> None:
    costs, _, _ = learned(60)
    rows = cube().numbers(np.random.default_rng(2).random((200, 3)))
    expected, real = costs.logarithms(cube().features(rows)), np.log([paid(row) for row in rows])
    assert np.corrcoef(expected, real)[0, 1] > 0.95 and np.abs(expected - real).mean() < 0.5


def test_the_first_eight_trials_tell_what_is_dear() -> None:
    costs, _, _ = learned(8)
    costs.learn()
    rows = cube().numbers(np.array([[0.5, 0.1, 0.5], [0.5, 0.9, 0.5]]))
    small, large = costs.logarithms(cube().features(rows))
    assert large - small > 2


@pytest.mark.parametrize("cost", [None, math.nan, math.inf, -1.0, 1e200, 0.0])
def test_what_says_nothing_of_the_cost_leaves_it_unknown(cost: float | None) -> None:
    curves = Curves(9)
    costs = Costs(cube(), curves)
    curves.add("a", {"x": 0.5, "kind": 0})
    costs.note("a", cost)
    costs.learn()
    assert not costs.known


def test_a_free_result_lowers_what_the_trials_iterations_cost() -> None:
    costs, curves, _ = learned(1)
    curves.add("free", {"x": 0.5, "kind": 0})
    for cost in (0.0, 0.0, 3.0):
        costs.note("free", cost)
    costs.learn()
    assert costs.get_state()["paid"][1] == (3, 3.0)


def test_equal_costs_are_equal_everywhere() -> None:
    curves = Curves(9)
    costs = Costs(cube(), curves)
    for number in range(20):
        curves.add(str(number), {"x": number / 20, "kind": 0})
        costs.note(str(number), 7.0)
    costs.learn()
    rows = cube().numbers(np.random.default_rng(2).random((50, 3)))
    assert costs.logarithms(cube().features(rows)) == pytest.approx(np.full(50, math.log(7.0)))


def test_many_trials_are_learned_from_in_a_number_of_rows_that_is_bounded() -> None:
    costs, _, _ = learned(200)
    assert len(costs._process._depths) == 150


def test_the_state_is_all_of_it() -> None:
    costs, curves, _ = learned(60)
    again = Costs(cube(), curves)
    again.set_state(cloudpickle.loads(cloudpickle.dumps(costs.get_state())))
    features = cube().features(cube().numbers(np.random.default_rng(3).random((20, 3))))
    for each in (costs, again):
        each.note("7", 3.0)
        each.learn()
    assert again.logarithms(features).tolist() == costs.logarithms(features).tolist()
    assert again.get_state() == costs.get_state()
