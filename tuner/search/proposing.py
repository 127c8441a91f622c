"""`Proposer`: points that are worth trying, by what a model expects of them."""

from __future__ import annotations

import numpy as np

from tuner.search.costs import Costs
from tuner.search.cube import Array, Cube
from tuner.search.curve_process import expected_improvement, one_thread
from tuner.search.curves import CurveModel, Curves
from tuner.search.dimensions import Point

_ANYWHERE = 200
_NEAR = ((0.2, 80), (0.07, 100), (0.02, 40))
"""(standard deviation, how many) of candidates near the best trials: each changes about half of its genes."""
_BEST = 8
_OTHER = 0.3
"""How often a choice among the changed genes is drawn anew."""


class Proposer:
    """Draws candidates all over the space and near the best trials, and takes the most promising one.

    Args:
        cube, curves, model: what is known of the trials and expected of others.
        costs: what candidates cost, against which it weighs what they promise; None: all cost alike.
    """

    def __init__(self, cube: Cube, curves: Curves, model: CurveModel, costs: Costs | None = None) -> None:
        self._cube, self._curves, self._model, self._costs = cube, curves, model, costs
        self._choices = np.array([each.kind == "choice" for each in cube.dimensions])

    def anywhere(self, seed: int) -> Point:
        """A random point."""
        genes = np.random.default_rng(seed).random((1, len(self._cube.dimensions)))
        return self._cube.point(self._cube.numbers(genes)[0])

    def best(self, seed: int) -> Point:
        """The candidate with the highest expected improvement for its cost that is new, if there is one."""
        numbers = self._cube.numbers(self._candidates(np.random.default_rng(seed)))
        features = self._cube.features(numbers)
        with one_thread():
            mean, deviation = self._model.process.predict(features, self._model.target)
            worth = expected_improvement(mean, deviation, self._model.ranked[0][0])
            if self._costs is not None and self._costs.known:
                worth = worth * np.exp(-self._costs.logarithms(features))
        order = np.argsort(-worth, kind="stable")
        points = (self._cube.point(numbers[place]) for place in order)
        fresh = next((point for point in points if not self._curves.has(point)), None)
        return self._cube.point(numbers[order[0]]) if fresh is None else fresh

    def _candidates(self, draw: np.random.Generator) -> Array:
        count = len(self._cube.dimensions)
        top = [number for _, number in self._model.ranked[:_BEST]]
        rows = np.array([self._cube.row(self._curves.points[number]) for number in top])
        genes = self._cube.genes(rows)
        found = [draw.random((_ANYWHERE, count))]
        for deviation, many in _NEAR:
            chosen = draw.integers(len(top), size=many)
            # What has no effect in the parent may have one in the child.
            parents = np.where(np.isnan(rows[chosen]), draw.random((many, count)), genes[chosen])
            changed = draw.random((many, count)) < 0.5
            numeric = changed & ~self._choices
            other = changed & self._choices & (draw.random((many, count)) < _OTHER)
            moved = np.clip(parents + numeric * draw.normal(size=(many, count)) * deviation, 0.0, 1.0)
            found.append(np.where(other, draw.random((many, count)), moved))
        return np.concatenate(found)
