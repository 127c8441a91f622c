"""`Cube`: the points of a search space as rows of numbers in [0, 1], for models that learn from them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.search.dimensions import Dimension, Point

Array = NDArray[np.float64]
_APART = math.sqrt(0.5)
"""Of a choice's column: two values are then 1 apart, as the ends of a number are."""


class Cube:
    """Genes (a uniform number per dimension), numbers (what dimensions have) and features (what a model sees).

    A dimension without effect, because its choice took another value, has the same feature whatever its gene says.

    Args:
        dimensions: those of the space, a choice before what depends on it.
    """

    def __init__(self, dimensions: Sequence[Dimension]) -> None:
        self.dimensions = list(dimensions)
        self._place = {each.name: place for place, each in enumerate(self.dimensions)}

    def numbers(self, genes: Array) -> Array:
        """What genes of [0, 1] mean: rows of numbers, each inside its dimension's bounds."""
        columns = [_numbers(each, genes[:, place]) for place, each in enumerate(self.dimensions)]
        return np.stack(columns, axis=1)

    def genes(self, numbers: Array) -> Array:
        """Genes that mean these numbers; 0.5 where there is none."""
        columns = [_genes(each, numbers[:, place]) for place, each in enumerate(self.dimensions)]
        return np.nan_to_num(np.stack(columns, axis=1), nan=0.5)

    def features(self, numbers: Array) -> Array:
        """What a model sees: numbers scaled to [0, 1], and a column for each value of a choice."""
        active: dict[str, NDArray[np.bool_]] = {}
        columns: list[Array] = []
        for place, each in enumerate(self.dimensions):
            here = ~np.isnan(numbers[:, place])
            if each.parent is not None:
                choice, index = each.parent
                here &= active[choice] & (numbers[:, self._place[choice]] == index)
            active[each.name] = here
            if each.kind == "choice":
                columns += [_APART * (here & (numbers[:, place] == index)) for index in range(each.size)]
            else:
                columns.append(np.where(here, _scaled(each, numbers[:, place]), 0.5))
        return np.stack(columns, axis=1)

    def point(self, numbers: Array) -> Point:
        """The point of one row: the dimensions that have an effect."""
        found: Point = {}
        for place, each in enumerate(self.dimensions):
            if each.parent is None or found.get(each.parent[0]) == each.parent[1]:
                found[each.name] = each.within(numbers[place])
        return found

    def row(self, point: Point) -> Array:
        """The numbers of a point; NaN for what it has not."""
        return np.array([point.get(each.name, math.nan) for each in self.dimensions], dtype=float)


def _ends(each: Dimension) -> tuple[float, float]:
    """The bounds on the scale that is searched; of a whole number half a step further, so that all are alike."""
    half = 0.0 if each.kind == "float" else 0.5
    if not each.log:
        return each.low - half, each.high + half
    return math.log(each.low - half), math.log(each.high + half)


def _numbers(each: Dimension, genes: Array) -> Array:
    low, high = _ends(each)
    value = low + genes * (high - low)
    value = np.exp(value) if each.log else value
    return np.clip(value if each.kind == "float" else np.round(value), each.low, each.high)


def _genes(each: Dimension, numbers: Array) -> Array:
    low, high = _ends(each)
    place: Array = np.clip(((np.log(numbers) if each.log else numbers) - low) / (high - low), 0.0, 1.0)
    return place


def _scaled(each: Dimension, numbers: Array) -> Array:
    if each.log:
        low, high = math.log(each.low), math.log(each.high)
        return (np.log(numbers) - low) / (high - low)
    return (numbers - each.low) / (each.high - each.low) if each.high > each.low else np.zeros_like(numbers)
