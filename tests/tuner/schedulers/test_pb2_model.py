"""PB2's model: its kernel against numerical gradients, and where it looks."""

from __future__ import annotations

import numpy as np
import pytest


def test_two_clones_of_one_moment_get_different_values() -> None:
    from tuner.schedulers.pb2_model import propose

    observed = [(float(t), t * 0.1, [x], 1 + 0.1 * x * (-1) ** t) for t in range(3) for x in (0.0, 1.0)]
    first = propose(observed, [], [(0.0, 1.0)], (3.0, 0.3), seed="s")
    second = propose(observed, [first], [(0.0, 1.0)], (3.0, 0.3), seed="s")
    assert abs(first[0] - second[0]) > 0.1
    assert first == propose(observed, [], [(0.0, 1.0)], (3.0, 0.3), seed="s")


def test_the_kernels_gradients_are_right() -> None:
    from tuner.schedulers.pb2_model import TimeVarying

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
