"""`Curves`: what trials have shown at the depths that are learned from; `CurveModel`: what is expected of them."""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Any

import numpy as np
from scipy.special import ndtri

from tuner.search.cube import Array, Cube
from tuner.search.curve_process import CurveProcess, one_thread, probability_above
from tuner.search.dimensions import Point

_SPAN = 17
"""Trials are looked at from the 17th part of the largest depth on, at each sqrt(2)-fold: what the first of 52 epochs
show says next to nothing about the last ones.
"""
_FARTHEST = 2.0**30
_MOST = 250
"""Rows of the model: what bounds the cost of a suggestion."""
_FITTED, _GROWN = 160, 1.25
"""Rows from which parameters are found, and after what growth they are again."""
_ALIKE = 0.1
"""How far apart configs are that hardly count as alike: the root mean square over features, each from 0 to 1."""
_EDGE = 1e-4
"""Shares of the scores end so far from 0 and 1, normal deviates at 3.7."""
_FAR = 5.0
"""How far beyond the best a new score counts; an infinite one is so far."""
_LARGEST = 1e100
"""Of a score: a larger one is infinite, so that differences are finite."""
_LOG = math.log(52.0)
"""The unit of depth: priors are those of curves of some fifty iterations."""


def rungs(max_t: float | None) -> list[float]:
    """The depths that are looked at; without a largest one from 1 on."""
    top = _FARTHEST if max_t is None else max_t
    depth, found = 1.0 if max_t is None else max(1.0, max_t / _SPAN), []
    while depth < top:
        found.append(float(round(depth)))
        depth *= math.sqrt(2.0)
    return [*dict.fromkeys(each for each in found if each < top), float(top)]


class Curves:
    """Trials by number, their points, and (depth, score) at each rung; a higher score is the better one."""

    def __init__(self, max_t: float | None) -> None:
        self.max_t, self._rungs = max_t, rungs(max_t)
        self.numbers: dict[str, int] = {}
        self.points: list[Point] = []
        self._tried: set[tuple[Any, ...]] = set()
        self.shown: list[list[tuple[float, float]]] = []
        self.count = 0
        """How many scores there are."""

    @property
    def first_rung(self) -> float:
        """Where trials are looked at first."""
        return self._rungs[0]

    def add(self, trial_id: str, point: Point) -> None:
        self.numbers[trial_id] = len(self.points)
        self.points.append(point)
        self._tried.add(_hashed(point))
        self.shown.append([])

    def has(self, point: Point) -> bool:
        """Whether a trial had it."""
        return _hashed(point) in self._tried

    def is_due(self, trial_id: str, depth: float) -> bool:
        """Whether it has come to a rung since it was looked at last."""
        shown = self.shown[self.numbers[trial_id]]
        before = shown[-1][0] if shown else 0.0
        return bisect_right(self._rungs, depth) > bisect_right(self._rungs, before)

    def note(self, trial_id: str, depth: float, score: float) -> None:
        """It has shown this score, worse than all others for NaN; what is not deeper than before is none."""
        shown = self.shown[self.numbers[trial_id]]
        if depth > 0 and (not shown or depth > shown[-1][0]):
            bounded = score if abs(score) <= _LARGEST else math.copysign(math.inf, score)
            shown.append((depth, -math.inf if math.isnan(score) else bounded))
            self.count += 1

    def deepest(self) -> float:
        """The depth that matters: the largest there is to be, or has been so far."""
        return self.max_t or max((shown[-1][0] for shown in self.shown if shown), default=1.0)

    def rows(self) -> list[tuple[int, int]]:
        """(trial, which of its scores) that a model of bounded size learns from: the last of each, then the others of
        the deepest trials; of too many trials the best and the newest.
        """
        last = [(number, len(shown) - 1) for number, shown in enumerate(self.shown) if shown]
        if len(last) > _MOST:
            ranked = sorted(last, key=lambda row: (-self.shown[row[0]][row[1]][1], row[0]))
            best = ranked[: _MOST * 2 // 3]
            newest = sorted(ranked[len(best) :])[len(best) - _MOST :]
            return sorted(best + newest)
        others = [(number, place) for number, top in last for place in range(0, top, 3)]
        others.sort(key=lambda row: (-self.shown[row[0]][-1][0], row))
        return last + others[: _MOST - len(last)]

    def get_state(self) -> dict[str, Any]:
        shown = [list(each) for each in self.shown]
        return {"ids": dict(self.numbers), "points": list(self.points), "shown": shown}

    def set_state(self, state: dict[str, Any]) -> None:
        self.numbers, self.points = dict(state["ids"]), list(state["points"])
        self._tried = set(map(_hashed, self.points))
        self.shown = [[(depth, score) for depth, score in each] for each in state["shown"]]
        self.count = sum(map(len, self.shown))


def _hashed(point: Point) -> tuple[Any, ...]:
    return tuple(sorted(point.items()))


def _weights(features: Array) -> Array:
    """Of rows: those whose configs are alike count as one row together.

    A search comes to try one place again and again. If each of these rows had a rank of its own, differences that are
    nothing would fill the upper half of the scale, and whatever lies elsewhere would be far below: it would stay there.
    """
    squared = (features * features).sum(axis=1)
    apart = np.maximum(squared[:, None] + squared[None] - 2 * features @ features.T, 0.0) / features.shape[1]
    return np.asarray(1 / np.exp(-apart / _ALIKE**2).sum(axis=1))


class CurveModel:
    """Predicts the scores of curves at the largest depth; scores are ranks turned into normal deviates, where trials of
    like configs have one rank between them.

    Its state is the parameters of the process and the rows that it has learned from: what it is made of when it is
    asked after a resume.

    Args:
        cube: of the space.
        curves: of the trials; more is added to them outside.
    """

    def __init__(self, cube: Cube, curves: Curves) -> None:
        self._cube, self._curves = cube, curves
        width = cube.features(cube.numbers(np.full((1, len(cube.dimensions)), 0.5))).shape[1]
        self.process = CurveProcess(width)
        self._rows: list[tuple[int, int]] = []
        self._numbers: list[Array] = []
        """The points of the trials as the cube has them."""
        self._fitted = 0
        self._made = False
        self.ranked: list[tuple[float, int]] = []
        """(expected score at the largest depth, trial), the best first, of the trials that it has learned from."""

    def learn(self, pending: list[int]) -> None:
        """Take all that curves show, and of trials without a score what is expected: their places are taken."""
        with one_thread():
            self._learn(pending)

    def _learn(self, pending: list[int]) -> None:
        self._rows = self._curves.rows()
        arrays = self._arrays()
        if len(self._rows) >= _GROWN * self._fitted + 3:
            # Rows come with the last score of each first; a stride takes of all.
            chosen = np.unique(np.linspace(0, len(self._rows) - 1, min(len(self._rows), _FITTED)).astype(int))
            self.process.fit(*(each[chosen] for each in arrays))
            self._fitted = len(self._rows)
        self._condition(arrays)
        if pending:
            features, trials = self._features(pending), np.array(pending)
            depth = np.full(len(pending), self._tau(self._curves.first_rung))
            expected = self.process.mean(features, float(depth[0]))
            added = (features, depth, trials, expected)
            both = [np.concatenate(pair) for pair in zip(arrays, added, strict=True)]
            self.process.condition(*both)

    def _arrays(self) -> tuple[Array, Array, Any, Array]:
        shown = self._curves.shown
        found = [(number, *shown[number][place]) for number, place in self._rows]
        trials = np.array([number for number, _, _ in found])
        depths = np.array([self._tau(depth) for _, depth, _ in found])
        scores = np.array([score for _, _, score in found])
        features = self._features(trials.tolist())
        self._set_scale(scores, _weights(features))
        return features, depths, trials, self.scaled(scores)

    def _condition(self, arrays: tuple[Array, Array, Any, Array]) -> None:
        self.process.condition(*arrays)
        numbers = list(dict.fromkeys(number for number, _ in self._rows))
        expected = self.process.mean(self._features(numbers), self.target, np.array(numbers))
        self.ranked = sorted(zip(expected.tolist(), numbers, strict=True), key=lambda each: (-each[0], each[1]))
        self._made = True

    def _features(self, trials: list[int]) -> Array:
        for point in self._curves.points[len(self._numbers) :]:
            self._numbers.append(self._cube.row(point))
        return self._cube.features(np.array([self._numbers[number] for number in trials]))

    def _tau(self, depth: float) -> float:
        return math.log(max(depth, 1e-9)) / _LOG

    @property
    def target(self) -> float:
        """The largest depth as the process has it."""
        return self._tau(self._curves.deepest())

    def _set_scale(self, scores: Array, weights: Array) -> None:
        known = np.isfinite(scores)
        finite, weights = (scores[known], weights[known]) if known.any() else (np.zeros(1), np.ones(1))
        values, which = np.unique(finite, return_inverse=True)
        counts = np.bincount(which, weights)
        share = (np.cumsum(counts) - counts / 2) / counts.sum()
        self._steps, self._normal = values, ndtri(np.clip(share, _EDGE, 1 - _EDGE))
        high, middle = np.interp((0.9, 0.4), share, values)
        self._beyond = max(float(high - middle), 1e-9)
        placed = self._placed(scores)
        self._centre, self._spread = float(placed.mean()), float(placed.std()) + 1e-9

    def _placed(self, scores: Array) -> Array:
        scores = np.clip(scores, self._steps[0], self._steps[-1] + _FAR * self._beyond)
        found = np.interp(scores, self._steps, self._normal)
        return np.asarray(found + np.maximum(scores - self._steps[-1], 0.0) / self._beyond)

    def scaled(self, scores: Array) -> Array:
        """Scores on the scale of the process: by rank among those that it has learned from."""
        return (self._placed(scores) - self._centre) / self._spread

    def chance(self, trial_id: str, depth: float, score: float) -> float:
        """The probability that a trial with this newest score ends above the best of all others."""
        with one_thread():
            if not self._made:
                self._condition(self._arrays())
            number = self._curves.numbers[trial_id]
            best = next((mean for mean, other in self.ranked if other != number), -math.inf)
            seen = (self._tau(depth), float(self.scaled(np.array([score]))[0]))
            mean, deviation = self.process.after(self._features([number])[0], number, seen, self.target)
        return probability_above(mean, deviation, best)

    def get_state(self) -> dict[str, Any]:
        return {"parameters": list(self.process.parameters), "rows": list(self._rows), "fitted": self._fitted}

    def set_state(self, state: dict[str, Any]) -> None:
        self.process.parameters = list(state["parameters"])
        self._rows = [(number, place) for number, place in state["rows"]]
        self._fitted, self._made, self._numbers = state["fitted"], False, []
