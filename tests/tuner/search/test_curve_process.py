"""The Gaussian process of curves: its gradient is that of its loss, and what it was told it repeats."""

from __future__ import annotations

import numpy as np

from tuner.search.curve_process import CurveProcess, expected_improvement, probability_above


def _told(count: int = 20) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    trials = np.arange(count) // 2
    features = draw.random((count // 2, 3))[trials]
    depths = np.tile([0.0, 0.8], count // 2)
    return features, depths, trials, features[:, 0] * 2 - 1 + depths


def test_the_gradient_is_that_of_the_loss() -> None:
    features, depths, trials, values = _told()
    same = (trials[:, None] == trials[None]).astype(float)
    process = CurveProcess(3)
    at = np.array(process.parameters) + 0.1
    _, gradient = process._loss(at, features, depths, same, values)
    for place in range(len(at)):
        step = np.eye(len(at))[place] * 1e-5
        up, down = (process._loss(at + sign * step, features, depths, same, values)[0] for sign in (1, -1))
        assert np.isclose(gradient[place], (up - down) / 2e-5, rtol=1e-3, atol=1e-4)


def test_it_knows_what_it_was_told_and_is_unsure_of_the_rest() -> None:
    features, depths, trials, values = _told()
    process = CurveProcess(3)
    process.fit(features, depths, trials, values)
    process.condition(features, depths, trials, values)
    assert np.allclose(process.mean(features[1::2], 0.8, trials[1::2]), values[1::2], atol=0.2)
    _, near = process.predict(features[:1], 0.8)
    _, far = process.predict(features[:1] + 5.0, 0.8)
    assert near[0] < far[0]
    better = process.after(features[0], 0, (0.4, 3.0), 0.8)[0]
    assert better > process.after(features[0], 0, (0.4, -3.0), 0.8)[0]


def test_what_promises_more_is_worth_more() -> None:
    worth = expected_improvement(np.array([0.0, 1.0, 0.0]), np.array([1.0, 1.0, 2.0]), 0.5)
    assert worth[1] > worth[0] and worth[2] > worth[0]
    assert probability_above(1.0, 1.0, 1.0) == 0.5
