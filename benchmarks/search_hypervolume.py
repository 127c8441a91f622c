"""Hypervolume of two objectives: the area that points dominate, both objectives to be made large, from (0, 0)."""

from __future__ import annotations

from collections.abc import Iterable

from search_runs import Place


def hypervolume(places: Iterable[Place]) -> float:
    """The area, exactly.

    >>> hypervolume([(1.0, 0.25), (0.5, 0.5), (0.25, 0.25)])
    0.375
    """
    area = height = 0.0
    for right, top in sorted(places, reverse=True):
        if top > height:
            area, height = area + right * (top - height), top
    return area


class Front:
    """Points as they come, of which it keeps those that none beats."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.volume = 0.0

    def add(self, place: Place) -> float:
        """Take one; returns the area with it."""
        if not any(other[0] >= place[0] and other[1] >= place[1] for other in self.places):
            kept = [other for other in self.places if other[0] > place[0] or other[1] > place[1]]
            self.places = [*kept, place]
            self.volume = hypervolume(self.places)
        return self.volume
