"""The Gaussian process of PB2, and where it is most worth looking. Imports scikit-learn."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel, WhiteKernel

Array = NDArray[np.float64]
Row = tuple[float, float, list[float], float]

_CANDIDATES, _ROUNDS = 300, 3
_DIGITS = 6
"""Of a proposal: fewer than differ between two machines' linear algebra."""


def propose(
    observed: Sequence[Row],
    running: Sequence[Sequence[float]],
    bounds: Sequence[tuple[float, float]],
    now: tuple[float, float],
    *,
    seed: str,
) -> list[float]:
    """The values, each scaled to [0, 1], with the highest upper confidence bound.

    Args:
        observed: time, score before, values, gain per unit of time.
        running: values that are tried now: they lower the uncertainty around them (Desautels et al. 2014).
        bounds: least and greatest of each value.
        now: time and score from which the values are to be used.
        seed: of the candidates.
    """
    low = np.array([bound[0] for bound in bounds])
    width = np.array([bound[1] - bound[0] for bound in bounds])
    width[width == 0] = 1.0
    context = np.array([row[:2] for row in observed])
    least, spread = context.min(axis=0), np.ptp(context, axis=0)
    spread[spread == 0] = 1.0
    past = np.hstack([(context - least) / spread, (np.array([row[2] for row in observed]) - low) / width])
    fixed = (np.array(now) - least) / spread
    gains = np.array([row[3] for row in observed])
    deviation = gains.std()
    process = _fitted(past, np.clip((gains - gains.mean()) / (deviation if deviation > 0 else 1.0), -2.0, 2.0))
    uncertain = process
    if running:
        tried = np.hstack([np.tile(fixed, (len(running), 1)), (np.array(running) - low) / width])
        # What was gained does not matter to the uncertainty, only where it was looked.
        uncertain = GaussianProcessRegressor(process.kernel_, optimizer=None)
        uncertain.fit(np.vstack([past, tried]), np.zeros(len(past) + len(tried)))
    weight = math.sqrt(0.2 + max(0.0, math.log(0.4 * len(past))))

    def bound(points: Array) -> Array:
        rows = np.hstack([np.tile(fixed, (len(points), 1)), points])
        _, deviation = uncertain.predict(rows, return_std=True)
        found: Array = process.predict(rows) + weight * deviation
        return found

    return [round(float(unit), _DIGITS) for unit in _highest(bound, len(bounds), seed)]


def _highest(bound: Any, size: int, seed: str) -> Array:
    """Where in the unit cube `bound` is highest: the best of many points, then ever closer around it."""
    random = np.random.default_rng(list(seed.encode()))
    best, value = np.full(size, 0.5), -math.inf
    for number in range(_ROUNDS + 1):
        points = random.random((_CANDIDATES, size))
        if number:
            points = np.clip(best + (points - 0.5) * 0.3**number, 0.0, 1.0)
        values = bound(points)
        index = int(np.argmax(values))
        if values[index] > value:
            best, value = points[index], values[index]
    return best


def _fitted(points: Array, gains: Array) -> Any:
    process = GaussianProcessRegressor(TimeVarying() + WhiteKernel(0.1, (1e-4, 1.0)), random_state=0)
    with warnings.catch_warnings():
        # With few observations the likelihood says little, and its maximum lies at a bound: no fault of the user's.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return process.fit(points, gains)


class TimeVarying(Kernel):  # type: ignore[misc]
    """Squared exponential, and forgetting: `variance * exp(-|x - x'|^2 / lengthscale) * (1 - epsilon)^(|t - t'| / 2)`.

    The time is the first column.

    Source: Bogunovic et al. 2016, "Time-Varying Gaussian Process Bandit Optimization", section 2; PB2, equation 5.
    """

    def __init__(
        self,
        variance: float = 1.0,
        lengthscale: float = 1.0,
        epsilon: float = 0.1,
        variance_bounds: tuple[float, float] = (1e-3, 1e3),
        lengthscale_bounds: tuple[float, float] = (1e-3, 1e3),
        epsilon_bounds: tuple[float, float] = (1e-5, 0.5),
    ) -> None:
        self.variance, self.lengthscale, self.epsilon = variance, lengthscale, epsilon
        self.variance_bounds, self.lengthscale_bounds = variance_bounds, lengthscale_bounds
        self.epsilon_bounds = epsilon_bounds

    # What scikit-learn asks of each number that it fits.
    hyperparameter_variance = property(lambda self: Hyperparameter("variance", "numeric", self.variance_bounds))
    hyperparameter_lengthscale = property(
        lambda self: Hyperparameter("lengthscale", "numeric", self.lengthscale_bounds)
    )
    hyperparameter_epsilon = property(lambda self: Hyperparameter("epsilon", "numeric", self.epsilon_bounds))

    def __call__(self, X: Array, Y: Array | None = None, eval_gradient: bool = False) -> Any:
        there = X if Y is None else Y
        apart = np.abs(X[:, None, 0] - there[None, :, 0]) / 2
        squared = ((X[:, None, 1:] - there[None, :, 1:]) ** 2).sum(axis=-1)
        value = self.variance * np.exp(-squared / self.lengthscale) * (1 - self.epsilon) ** apart
        if not eval_gradient:
            return value
        # By the logarithms, in the order of the names: epsilon, lengthscale, variance.
        gradients = (-value * apart * self.epsilon / (1 - self.epsilon), value * squared / self.lengthscale, value)
        return value, np.dstack(gradients)

    def diag(self, X: Array) -> Array:
        return np.full(len(X), self.variance)

    def is_stationary(self) -> bool:
        return True
