"""`CurveProcess`: a Gaussian process over configs and depths of training. Imports SciPy."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize
from scipy.special import ndtr
from threadpoolctl import ThreadpoolController

Array = NDArray[np.float64]
Ids = NDArray[np.int64]

_ROOT5 = np.sqrt(5.0)
_TREND = 0.7
"""The length scale of what all curves have in common."""
_JITTER = 1e-6
_LIBRARIES = ThreadpoolController()
_EXTRA = 5
"""Parameters after the length scales: that of depth, and four variances."""


def one_thread() -> AbstractContextManager[Any]:
    """For what is done with a process: the matrices are small, the cores are the trials', and sums keep their order."""
    limited: AbstractContextManager[Any] = _LIBRARIES.limit(limits=1)
    return limited


def matern(distance: Array | float) -> Array:
    """Matern's kernel with smoothness 5/2."""
    return np.asarray((1 + _ROOT5 * distance + 5 / 3 * distance * distance) * np.exp(-_ROOT5 * distance))


class CurveProcess:
    """Values at (config x, depth t): k = kx (a + b kt) + trend(t) + e kt [same trial] + noise.

    `a` is what a config is worth at any depth, `b` what changes with depth, `e` a trial's own luck, which stays with
    it. The parameters are those of the highest posterior, found by gradients from those that it has.

    Args:
        width: how many features a config has.

    Source: Swersky et al. 2014, "Freeze-Thaw Bayesian Optimization", section 3, with a product kernel in place of
    exponential decay.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._centre = np.log(np.r_[np.full(width, 0.6), 0.5, 0.7, 0.3, 0.05, 0.01])
        self._spread = np.r_[np.full(width, 1.0), 0.7, 1.0, 1.0, 1.5, 1.5]
        self.parameters: list[float] = self._centre.tolist()

    def fit(self, features: Array, depths: Array, trials: Ids, values: Array) -> None:
        """Move the parameters to where these values are likely; values have mean 0 and variance 1."""
        low = np.log(np.r_[np.full(self._width, 0.05), 0.1, np.full(_EXTRA - 1, 1e-4)])
        high = np.log(np.r_[np.full(self._width, 20.0), 10.0, np.full(_EXTRA - 1, 20.0)])
        same = (trials[:, None] == trials[None]).astype(float)
        found = minimize(
            self._loss, self.parameters, args=(features, depths, same, values), jac=True, method="L-BFGS-B",
            bounds=list(zip(low, high, strict=True)), options={"maxiter": 20},
        )  # fmt: skip
        if np.isfinite(found.fun) and found.fun < _IMPOSSIBLE:
            self.parameters = found.x.tolist()

    def _loss(
        self, parameters: Array, features: Array, depths: Array, same: Array, values: Array
    ) -> tuple[float, Array]:
        """The negative logarithm of the posterior, and its gradient."""
        lengths, depth_length, level, change, luck, noise = self._named(parameters)
        scaled, count = features / lengths, len(values)
        squared, apart = _squared(scaled, scaled), np.abs(depths[:, None] - depths[None]) / depth_length
        distance = np.sqrt(squared)
        decay, depth_decay = np.exp(-_ROOT5 * distance), np.exp(-_ROOT5 * apart)
        alike = (1 + _ROOT5 * distance + 5 / 3 * squared) * decay
        near = (1 + _ROOT5 * apart + 5 / 3 * apart * apart) * depth_decay
        kernel = alike * (level + change * near) + matern(np.abs(depths[:, None] - depths[None]) / _TREND)
        kernel += luck * same * near
        kernel[np.diag_indices(count)] += noise + _JITTER
        try:
            lower = np.linalg.cholesky(kernel)
        except np.linalg.LinAlgError:
            return _IMPOSSIBLE, np.zeros_like(parameters)
        inverse = cho_solve((lower, True), np.eye(count))
        weights = inverse @ values
        outer = inverse - np.outer(weights, weights)
        gradient = np.empty_like(parameters)
        moved = outer * (level + change * near) * (5 / 3 * (1 + _ROOT5 * distance) * decay)
        sums = moved.sum(axis=1)
        for place in range(self._width):
            column = scaled[:, place]
            gradient[place] = sums @ (column * column) - column @ (moved @ column)
        slope = 5 / 3 * apart * apart * (1 + _ROOT5 * apart) * depth_decay
        outer_alike, outer_same = outer * alike, outer * same
        gradient[self._width :] = 0.5 * np.array([
            (outer_alike * slope).sum() * change + (outer_same * slope).sum() * luck,
            level * outer_alike.sum(),
            change * (outer_alike * near).sum(),
            luck * (outer_same * near).sum(),
            noise * np.trace(outer),
        ])  # fmt: skip
        off = (parameters - self._centre) / self._spread
        loss = 0.5 * values @ weights + np.log(np.diag(lower)).sum() + 0.5 * off @ off
        return float(loss), gradient + off / self._spread

    def _named(self, parameters: Array) -> tuple[Array, float, float, float, float, float]:
        each = np.exp(np.asarray(parameters))
        depth_length, level, change, luck, noise = map(float, each[self._width :])
        return each[: self._width], depth_length, level, change, luck, noise

    def condition(self, features: Array, depths: Array, trials: Ids, values: Array) -> None:
        """Take these values as known from now on, and no others."""
        lengths, depth_length, level, change, luck, noise = self._named(np.asarray(self.parameters))
        self._scaled, self._lengths, self._depths, self._trials = features / lengths, lengths, depths, trials
        alike = matern(np.sqrt(_squared(self._scaled, self._scaled)))
        # Depths are few, and the kernels of all pairs of rows are looked up.
        few, which = np.unique(depths, return_inverse=True)
        between, pairs = np.abs(few[:, None] - few[None]), (which[:, None], which[None])
        near = matern(between / depth_length)[pairs]
        kernel = alike * (level + change * near) + matern(between / _TREND)[pairs]
        kernel += (trials[:, None] == trials[None]) * luck * near
        kernel[np.diag_indices(len(values))] += noise + _JITTER
        lower = np.linalg.cholesky(kernel)
        self._inverse = solve_triangular(lower, np.eye(len(values)), lower=True, check_finite=False)
        self._weights = self._inverse.T @ (self._inverse @ values)

    def _with_known(self, features: Array, depth: float, trials: Ids | None) -> Array:
        """The covariance of values at one depth with the known ones."""
        _, depth_length, level, change, luck, _ = self._named(np.asarray(self.parameters))
        near = matern(np.abs(depth - self._depths) / depth_length)
        kernel = matern(np.sqrt(_squared(features / self._lengths, self._scaled)))
        kernel *= level + change * near
        kernel += matern(np.abs(depth - self._depths) / _TREND)
        if trials is not None:
            kernel += (trials[:, None] == self._trials[None]) * (luck * near)
        return kernel

    def mean(self, features: Array, depth: float, trials: Ids | None = None) -> Array:
        """What is expected at a depth; `trials`: of these, and not of new ones."""
        return np.asarray(self._with_known(features, depth, trials) @ self._weights)

    def predict(self, features: Array, depth: float) -> tuple[Array, Array]:
        """Mean and standard deviation of new trials at a depth."""
        kernel = self._with_known(features, depth, None)
        _, _, level, change, luck, _ = self._named(np.asarray(self.parameters))
        explained = self._inverse @ kernel.T
        variance = level + change + luck + 1.0 - (explained * explained).sum(axis=0)
        return kernel @ self._weights, np.sqrt(np.maximum(variance, 1e-9))

    def after(self, features: Array, trial: int, seen: tuple[float, float], depth: float) -> tuple[float, float]:
        """Mean and standard deviation of a trial at a depth, when it has also shown (depth, value) `seen`."""
        _, depth_length, level, change, luck, noise = self._named(np.asarray(self.parameters))
        row, ids = features[None], np.array([trial])
        now, then = (self._with_known(row, at, ids)[0] for at in (seen[0], depth))
        explained_now, explained_then = self._inverse @ now, self._inverse @ then
        between = abs(depth - seen[0])
        total, near = level + change + luck + 1.0, float(matern(between / depth_length))
        here = total + noise + _JITTER - explained_now @ explained_now
        both = level + (change + luck) * near + float(matern(between / _TREND)) - explained_now @ explained_then
        gain = both / max(here, _JITTER)
        mean = then @ self._weights + gain * (seen[1] - now @ self._weights)
        return float(mean), float(np.sqrt(max(total - explained_then @ explained_then - gain * both, 1e-9)))


_IMPOSSIBLE = 1e10


def _squared(rows: Array, others: Array) -> Array:
    """Squared distances of all pairs."""
    sums = (rows * rows).sum(axis=1)[:, None] + (others * others).sum(axis=1)[None]
    return np.asarray(np.maximum(sums - 2 * rows @ others.T, 0.0))


def expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """Over `best`, of values that are normally distributed (Jones et al. 1998, equation 15)."""
    above = (mean - best) / deviation
    return np.asarray(deviation * (above * ndtr(above) + np.exp(-0.5 * above * above) / np.sqrt(2 * np.pi)))


def probability_above(mean: float, deviation: float, best: float) -> float:
    """That a normally distributed value is above `best`."""
    return float(ndtr((mean - best) / deviation))
