"""Pareto dominance: which points none beats, and the fronts of points that come one after another.

A point is a tuple, one item per objective, each to be made small; items are numbers, or whatever compares like them and
is equal to itself (no NaN). A point beats another one if it is nowhere larger, and is not that one.
"""

from __future__ import annotations

import bisect
import itertools
import operator
from collections.abc import Iterable, Sequence
from typing import Any

Point = tuple[Any, ...]


def is_beaten(point: Point, front: Sequence[Point]) -> bool:
    """Whether a point of a front is at least as good in all objectives.

    Args:
        point: one that is not in the front.
        front: sorted points of which none beats another.
    """
    before = bisect.bisect_right(front, point)
    if len(point) == 2:  # along a front the second objective goes down: the last one before it has the smallest
        return before > 0 and front[before - 1][1] <= point[1]
    return any(all(map(operator.le, other, point)) for other in itertools.islice(front, before))


def first_front(points: Iterable[Point]) -> list[Point]:
    """The points that none of them beats, sorted, equal ones once.

    >>> first_front([(1, 3), (2, 2), (2, 3), (3, 1), (1, 3)])
    [(1, 3), (2, 2), (3, 1)]
    """
    front: list[Point] = []
    for point in sorted(set(points)):  # what beats a point stands before it
        if not is_beaten(point, front):
            front.append(point)
    return front


class Fronts:
    """Points in fronts, while more of them come: nothing in the n-th is beaten but by what is in those before it.

    The fronts are the same in whatever order the points came.

    >>> fronts = Fronts()
    >>> [fronts.add(point) for point in [(2, 2), (1, 3), (2, 3), (1, 1)]]
    [0, 0, 1, 0]
    >>> fronts.levels
    [[(1, 1)], [(1, 3), (2, 2)], [(2, 3)]]

    Source: the fronts are those of Deb et al. 2002, "A Fast and Elitist Multiobjective Genetic Algorithm: NSGA-II",
    section III-A; a new point moves down what it beats, as in Li et al. 2017, "Efficient Nondomination Level Update
    Method for Steady-State Evolutionary Multiobjective Optimization".
    """

    def __init__(self, points: Iterable[Point] = ()) -> None:
        self.levels: list[list[Point]] = []
        """The fronts, the best first; each sorted, equal points once."""
        for point in points:
            self.add(point)

    def add(self, point: Point) -> int:
        """Take a point; returns the number of its front, from 0, the best."""
        found = self.find(point)
        place = [] if found == len(self.levels) else self.levels[found]
        at = bisect.bisect_left(place, point)
        if at == len(place) or place[at] != point:
            self._insert([point], found)
        return found

    def find(self, point: Point) -> int:
        """The front that a point is in, or would be."""
        # A front with a point that beats it has only such fronts before it, so that halving finds the last.
        return bisect.bisect_left(self.levels, True, key=lambda front: not _has_better(point, front))

    def _insert(self, points: list[Point], number: int) -> None:
        """Put sorted points, none of which beats another, into a front; what they beat moves one on, and so forth."""
        while points:
            if number == len(self.levels):
                self.levels.append(points)
                return
            front = self.levels[number]
            start = bisect.bisect_left(front, points[0])  # what stands before is beaten by none of them
            beaten = [point for point in itertools.islice(front, start, None) if is_beaten(point, points)]
            gone = set(beaten)
            self.levels[number] = sorted([point for point in front if point not in gone] + points)
            points, number = beaten, number + 1


def _has_better(point: Point, front: list[Point]) -> bool:
    at = bisect.bisect_left(front, point)
    return not (at < len(front) and front[at] == point) and is_beaten(point, front)
