"""PB2's model: its kernel against numerical gradients, and where it looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from tuner.schedulers.pb2_model import Row, TimeVarying, propose


def test_two_clones_of_one_moment_get_different_values() -> None:
    observed = [(float(t), t * 0.1, [x], 1 + 0.1 * x * (-1) ** t) for t in range(3) for x in (0.0, 1.0)]
    first = propose(observed, [], [(0.0, 1.0)], (3.0, 0.3), seed="s")
    second = propose(observed, [first], [(0.0, 1.0)], (3.0, 0.3), seed="s")
    assert abs(first[0] - second[0]) > 0.1
    assert first == propose(observed, [], [(0.0, 1.0)], (3.0, 0.3), seed="s")


def test_the_kernels_gradients_are_right() -> None:
    points = np.random.default_rng(0).random((12, 4))
    kernel = TimeVarying(1.3, 0.7, 0.2)
    value, gradients = kernel(points, eval_gradient=True)
    assert value[2, 5] == pytest.approx(
        1.3
        * np.exp(-((points[2, 1:] - points[5, 1:]) ** 2).sum() / 0.7)
        * 0.8 ** (abs(points[2, 0] - points[5, 0]) / 2)
    )
    assert np.allclose(kernel.diag(points), np.diag(value))
    for index in range(3):
        step = np.zeros(3)
        step[index] = 1e-6
        above, below = (kernel.clone_with_theta(kernel.theta + sign * step)(points) for sign in (1, -1))
        assert np.allclose((above - below) / 2e-6, gradients[:, :, index], atol=1e-6)


def seen(gain: Callable[[float], float], *, bounds: tuple[float, float] = (0.0, 1.0), times: int = 3) -> list[Row]:
    """What was observed of a value between bounds that gains so much."""
    points = np.linspace(*bounds, 7)
    return [(float(time), 0.1 * time, [float(x)], gain(float(x))) for time in range(times) for x in points]


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-50.0, 150.0), (1e-6, 1e-5)])
def test_it_looks_where_most_was_gained_whatever_the_bounds(bounds: tuple[float, float]) -> None:
    low, width = bounds[0], bounds[1] - bounds[0]
    observed = seen(lambda x: -(((x - low) / width - 0.7) ** 2), bounds=bounds)
    (unit,) = propose(observed, [], [bounds], (3.0, 0.3), seed="s")
    assert unit == pytest.approx(0.7, abs=0.1)


def test_a_value_that_makes_no_difference_does_not_hide_one_that_does() -> None:
    draw = np.random.default_rng(1)
    observed = [
        (float(t), 0.0, [float(x), float(draw.random())], -((float(x) - 0.2) ** 2))
        for t in range(4)
        for x in np.linspace(0, 1, 7)
    ]
    first, _ = propose(observed, [], [(0.0, 1.0), (0.0, 1.0)], (4.0, 0.0), seed="s")
    assert first == pytest.approx(0.2, abs=0.15)


@settings(max_examples=6, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 9), st.floats(-5, 5), st.tuples(st.floats(-1, 1), st.just(3.0)), st.floats(-100, 100)),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 3),
)
def test_a_proposal_lies_in_the_unit_cube_whatever_was_observed(observed: list[Any], running: int) -> None:
    """Also of one row, of rows that are all the same, and of a value whose bounds are one number."""
    rows = [(time, score, list(values), gain) for time, score, values, gain in observed]
    tried = [[0.1 * number, 3.0] for number in range(running)]
    arguments: Any = (rows, tried, [(-1.0, 1.0), (3.0, 3.0)], (10.0, 0.0))
    found = propose(*arguments, seed="s")
    assert len(found) == 2 and all(0.0 <= unit <= 1.0 for unit in found)
    assert found == [round(unit, 6) for unit in found]


def test_the_same_seed_looks_at_the_same_points() -> None:
    observed = seen(lambda x: -((x - 0.7) ** 2))
    first, again, other = (propose(observed, [], [(0.0, 1.0)], (1.0, 0.0), seed=seed) for seed in "aab")
    assert first == again != other


def test_what_was_long_ago_is_like_what_comes_less_and_less() -> None:
    kernel = TimeVarying(2.0, 1.0, 0.3)
    points = np.array([[0.0, 0.5], [1.0, 0.5], [4.0, 0.5]])
    now, later, much_later = kernel(points)[0]
    assert (now, later, much_later) == (2.0, pytest.approx(2 * 0.7**0.5), pytest.approx(2 * 0.7**2))
    assert TimeVarying(2.0, 1.0, 0.0)(points)[0].tolist() == [2.0, 2.0, 2.0], "without forgetting"
    other = kernel(points[:1], np.array([[0.0, 1.5]]))
    assert other.shape == (1, 1) and other[0, 0] == pytest.approx(2 * np.exp(-1))
    assert kernel(points) == pytest.approx(kernel(points, points)) and kernel(points) == pytest.approx(kernel(points).T)


def test_scikit_learn_knows_its_numbers_and_their_bounds() -> None:
    kernel = TimeVarying(variance=2.0, lengthscale=3.0, epsilon=0.2, epsilon_bounds=(1e-4, 0.4))
    assert [each.name for each in kernel.hyperparameters] == ["epsilon", "lengthscale", "variance"]
    assert np.exp(kernel.theta) == pytest.approx([0.2, 3.0, 2.0])
    assert np.exp(kernel.bounds[0]) == pytest.approx([1e-4, 0.4])
    assert kernel.is_stationary()
    assert clone(kernel).get_params() == kernel.get_params()
