"""Several objectives: a result as a point, and the order in which points go on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainables.dominance import Fronts
from trainables.metrics import score_of
from trainables.quick_dataclass import dataclass

if TYPE_CHECKING:
    import numpy as np

Point = tuple[float, ...]
"""A value per objective, each turned so that lower is better."""


@dataclass(frozen=True)
class Objectives:
    """What trials are compared by, where that is more than one number.

    Args:
        names: the metrics.
        modes: "min" or "max" of each.
    """

    names: Sequence[str]
    modes: Sequence[str]

    def point(self, result: Mapping[str, Any]) -> Point | None:
        """What a result has of each; None: one of them is no number. NaN stays."""
        scores = [score_of(result, name) for name in self.names]
        known = [score for score in scores if score is not None]
        return self._turned(known) if len(known) == len(scores) else None

    def values(self, point: Point) -> dict[str, float]:
        """A point in the metrics' own direction."""
        return dict(zip(self.names, self._turned(point), strict=True))

    def _turned(self, values: Sequence[float]) -> Point:
        return tuple(
            -value if mode == "max" else value for value, mode in zip(values, self.modes, strict=True)
        )  # fmt: skip


def epsilon_net(front: Sequence[Point], *, chosen: Sequence[Point] = ()) -> Iterator[Point]:
    """The points of a front in an order in which each is as far as can be from those before it.

    It begins with the best in the first objective. Distances are Euclidean, each objective as a share of its range in
    the front; an infinite value lies at the range's end. Of equally far ones the better in the first objective.

    Args:
        front: points that differ, sorted.
        chosen: those of the front that come first whatever the others are.

    Example:
        >>> list(epsilon_net([(0, 9), (1, 8), (5, 4), (9, 0)]))
        [(0, 9), (9, 0), (5, 4), (1, 8)]

    Source: Salinas et al. 2021, "A multi-objective perspective on jointly tuning hardware and hyperparameters", section
    3; Schmucker et al. 2021, "Multi-objective Asynchronous Successive Halving", section 4.
    """
    import numpy as np  # 100 ms: only several objectives need it

    placed = _placed(front)
    room = np.full(len(front), math.inf)
    begin = [front.index(point) for point in chosen]
    for count in range(len(front)):
        number = begin[count] if count < len(begin) else int(room.argmax())  # of equal ones the first
        room = np.minimum(room, ((placed - placed[number]) ** 2).sum(axis=1))
        room[number] = -1.0  # it has been
        yield front[number]


def _placed(front: Sequence[Point]) -> np.ndarray[Any, Any]:
    """Each objective from 0, the best, to 1."""
    import numpy as np

    points = np.array(front, dtype=float)
    known = np.where(np.isfinite(points), points, np.nan)
    for axis, column in enumerate(known.T):
        numbers = column[~np.isnan(column)]
        low, high = (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 0.0)
        half = high / 2 - low / 2  # which never overflows
        points[:, axis] = (points[:, axis] / 2 - low / 2) / (half or 1.0)
    return points.clip(0.0, 1.0)


class PlaceOrder:
    """Points as they come, and who goes on before whom: by their front, and within one by its epsilon-net.

    Equal points have the same place. One with NaN or a worst infinity has none: it is behind all others.
    """

    def __init__(self) -> None:
        self.placed = 0
        """How many have a place."""
        self._fronts = Fronts()
        self._count: dict[Point, int] = {}

    @property
    def first(self) -> Sequence[Point]:
        """The front that nothing beats."""
        return self._fronts.levels[0] if self._fronts.levels else ()

    def add(self, point: Point) -> None:
        """Take a point."""
        if not has_place(point):
            return
        self.placed += 1
        self._count[point] = self._count.get(point, 0) + 1
        if self._count[point] == 1:
            self._fronts.add(point)

    def place(self, point: Point) -> tuple[int | None, int]:
        """Of a point that was taken: its front and its place among all, from 1, the best."""
        if not has_place(point):
            return None, self.placed + 1
        number = self._fronts.find(point)
        ahead = sum(self._counted(front) for front in self._fronts.levels[:number])
        front = self._fronts.levels[number]
        before = [] if len(front) == 1 else list(itertools.takewhile(lambda other: other != point, epsilon_net(front)))
        return number + 1, ahead + self._counted(before) + 1

    def top(self, count: int, *, chosen: Collection[Point] = ()) -> list[Point]:
        """Points of the best places, as many as make `count` with their equals; those of one front in any order.

        Args:
            chosen: in the front that is cut these come first.
        """
        order: list[Point] = []
        for front in self._fronts.levels:
            if count <= 0:
                break
            inside = self._counted(front)
            if inside <= count:  # nobody is left out, and the order does not matter
                order += front
            else:
                net = epsilon_net(front, chosen=[point for point in front if point in chosen])
                order += itertools.islice(net, count)
            count -= inside
        return order

    def _counted(self, points: Sequence[Point]) -> int:
        return sum(self._count[point] for point in points)


def has_place(point: Point) -> bool:
    """False: an objective is NaN, or as bad as can be."""
    return all(value < math.inf for value in point)
