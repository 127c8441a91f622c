"""Pareto front of checkpoints under several metrics, thinned by crowding distance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from trainables.dominance import first_front

Order = tuple[int, int, int]
"""(generation, attempt, index) of a save: what is older and what is newer within a trial."""
Point = tuple[tuple[tuple[int, float], ...], Order]
"""How a checkpoint ranks in each metric, greater is better, and its order negated, the earlier the greater."""


def negated(order: Order) -> Order:
    """Compares the other way round: the earlier is the greater."""
    generation, attempt, index = order
    return -generation, -attempt, -index


def front_of(points: Iterable[Point], limit: int | None) -> list[Point]:
    """The points that no other beats; of more than `limit` the most crowded are left out first."""
    earliest: dict[tuple[tuple[int, float], ...], Point] = {}
    for point in sorted(points):  # of equals the earliest is the greatest
        earliest[tuple((-rank, -value) for rank, value in point[0])] = point
    front = [earliest[key] for key in first_front(earliest)]
    while limit is not None and len(front) > limit:
        room = _room(front)
        front.remove(min(front, key=lambda point: (room[point], point[1])))
    return front


def _room(front: Sequence[Point]) -> dict[Point, float]:
    """How much room each point of a front has: infinite at its ends."""
    room = dict.fromkeys(front, 0.0)
    for axis in range(len(front[0][0])):
        line = sorted(front, key=lambda point: (point[0][axis], point[1]))
        numbers = [value if rank == 2 else -math.inf for rank, value in (point[0][axis] for point in line)]
        room[line[0]] = room[line[-1]] = math.inf
        whole = numbers[-1] - numbers[0]
        for before, point, after in zip(numbers, line[1:], numbers[2:], strict=False):
            if after > before:
                room[point] += (after - before) / whole if math.isfinite(whole) else math.isinf(after - before)
    return room
