"""`Costs`: what trials have cost an iteration, and what new configs are expected to."""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.search.cube import Array, Cube
from tuner.search.curve_process import CurveProcess, one_thread
from tuner.search.curves import Curves

_MOST = 150
"""Trials that are learned from: what bounds the cost of a suggestion."""
_FITTED, _GROWN = 80, 1.25
"""Trials from which parameters are found, and after what growth they are again."""
_SHORTEST = 0.4
"""Of length scales: with shorter ones a model of few trials takes all places that were not tried to cost the mean."""
_LARGEST = 1e100
"""Of a cost: a larger one says nothing, so that sums are finite."""


class Costs:
    """Predicts the logarithm of what an iteration costs, the mean of a trial's, by a Gaussian process over configs.

    Its state is what was paid and the parameters of the process: it learns anew before each use.

    Args:
        cube: of the space.
        curves: of the trials, for their points and numbers.
    """

    def __init__(self, cube: Cube, curves: Curves) -> None:
        self._cube, self._curves = cube, curves
        self._width = cube.features(cube.numbers(np.full((1, len(cube.dimensions)), 0.5))).shape[1]
        self._process = CurveProcess(self._width)
        self._paid: dict[int, tuple[int, float]] = {}
        """Trial -> how many results had a cost, and what they have cost together."""
        self._fitted = 0
        self._centre, self._spread = 0.0, 1.0
        self.known = False
        """Whether anything was paid when it learned last."""

    def note(self, trial_id: str, cost: float | None) -> None:
        """A trial's next iteration has cost so much; what is no number from 0 on says nothing."""
        if cost is not None and 0 <= cost <= _LARGEST:
            number = self._curves.numbers[trial_id]
            results, paid = self._paid.get(number, (0, 0.0))
            self._paid[number] = (results + 1, paid + cost)

    def learn(self) -> None:
        """Take all that was paid."""
        known = [(number, paid / results) for number, (results, paid) in sorted(self._paid.items()) if paid > 0]
        self.known = bool(known)
        if known:
            with one_thread():
                self._learn(known)

    def _learn(self, known: list[tuple[int, float]]) -> None:
        known = _some(known, _MOST)
        numbers, costs = [number for number, _ in known], np.log([cost for _, cost in known])
        self._centre, self._spread = float(costs.mean()), float(costs.std()) + 1e-9
        features = self._cube.features(np.array([self._cube.row(self._curves.points[number]) for number in numbers]))
        values, depths, trials = (costs - self._centre) / self._spread, np.zeros(len(known)), np.array(numbers)
        if len(known) >= _GROWN * self._fitted + 3:
            chosen = _some(list(range(len(known))), _FITTED)
            self._process.fit(features[chosen], depths[chosen], trials[chosen], values[chosen])
            found = self._process.parameters
            lengths = [max(length, float(np.log(_SHORTEST))) for length in found[: self._width]]
            self._process.parameters, self._fitted = [*lengths, *found[self._width :]], len(known)
        self._process.condition(features, depths, trials, values)

    def logarithms(self, features: Array) -> Array:
        """Of what an iteration of these configs is expected to cost."""
        return self._process.mean(features, 0.0) * self._spread + self._centre

    def get_state(self) -> dict[str, Any]:
        return {"paid": dict(self._paid), "parameters": list(self._process.parameters), "fitted": self._fitted}

    def set_state(self, state: dict[str, Any]) -> None:
        self._paid = {number: (results, paid) for number, (results, paid) in state["paid"].items()}
        self._process.parameters, self._fitted = list(state["parameters"]), state["fitted"]


def _some(rows: list[Any], most: int) -> list[Any]:
    """Not more than so many of them, evenly."""
    if len(rows) <= most:
        return rows
    return [rows[place] for place in np.linspace(0, len(rows) - 1, most).astype(int)]
