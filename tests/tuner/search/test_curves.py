"""What is kept of curves: scores at rungs, in a number of rows that is bounded, and a state that is all of it."""

from __future__ import annotations

import math

import numpy as np

import tuner as tune
from tuner.search.cube import Cube
from tuner.search.curves import CurveModel, Curves, rungs
from tuner.search.dimensions import DimensionSpace


def test_rungs_begin_at_a_part_of_the_largest_depth_and_end_there() -> None:
    assert rungs(1) == [1.0]
    assert rungs(52)[:4] == [3.0, 4.0, 6.0, 9.0] and rungs(27)[-1] == 27.0
    assert rungs(1000)[0] == 59.0 and len(rungs(1000)) < 16


def test_a_trial_is_due_once_at_each_rung() -> None:
    curves = Curves(27)
    curves.add("a", {"x": 0.5})
    due = []
    for depth in range(1, 28):
        if curves.is_due("a", depth):
            curves.note("a", depth, 1.0)
            due.append(float(depth))
    assert due == rungs(27)


def test_rows_are_bounded_and_have_the_best_and_the_newest() -> None:
    curves = Curves(27)
    for number in range(1000):
        curves.add(str(number), {"x": 0.5})
        curves.note(str(number), 1, -abs(number - 300))
    trials = {number for number, _ in curves.rows()}
    assert len(curves.rows()) == 250 and {300, 999} <= trials


def test_the_state_is_all_of_it() -> None:
    curves, other = Curves(None), Curves(None)
    curves.add("a", {"x": 0.5})
    curves.note("a", 2, math.nan)
    other.set_state(curves.get_state())
    assert other.get_state() == curves.get_state() and other.count == 1 and other.deepest() == 2


def test_trials_of_like_configs_have_one_rank_between_them() -> None:
    dimensions = DimensionSpace({name: tune.uniform(0, 1) for name in "xyz"}, "test").dimensions
    curves = Curves(27)
    model = CurveModel(Cube(list(dimensions.values())), curves)
    for number, place in enumerate(np.random.default_rng(0).random((20, 3)).tolist()):
        curves.add(str(number), dict(zip("xyz", place, strict=True)))
        curves.note(str(number), 27, float(number))
    for number in range(100):
        curves.add(f"near {number}", {name: value + number * 1e-5 for name, value in curves.points[19].items()})
        curves.note(f"near {number}", 27, 19 + number * 1e-5)
    model.learn([])
    low, other, best = model.scaled(np.array([0.0, 18.0, 19.001]))
    assert other - low > 0.5 * (best - low)  # with a rank for each trial 0.3, and 0.9 of them at the best place


def test_scores_that_are_all_infinite_or_the_same_are_learned_from() -> None:
    for score in (-math.inf, 1.0):
        curves = Curves(27)
        model = CurveModel(Cube(list(DimensionSpace({"x": tune.uniform(0, 1)}, "test").dimensions.values())), curves)
        for number in range(5):
            curves.add(str(number), {"x": 0.5})
            curves.note(str(number), 27, score)
        model.learn([])
        assert np.isfinite(model.scaled(np.array([score, 0.5]))).all()
