"""The combinations of all grids of a space, found by index."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping
from dataclasses import field

from trainables.quick_dataclass import dataclass
from tuner.search.space_tree import GridValues, Node, Path, leaves


class Grids:
    """All combinations of the grids of a tree, in Ray's order, found by index without making the ones before.

    The grids that are not inside another one run as digits, the first by path fastest; the grids inside a chosen value
    run fastest of all.
    """

    def __init__(self, root: Node) -> None:
        self._outer = sorted(
            ((path, node) for path, node in leaves(root) if isinstance(node, GridValues)),
            key=lambda item: _order(item[0]),
        )
        self._inner = [[Grids(node) for node in grid.nodes] for _, grid in self._outer]
        self._flat = all(inner.size == 1 for grids in self._inner for inner in grids)
        self._starts: list[int] = []
        self.size: int = math.prod(map(len, self._inner))
        if not self._flat:
            # Values with grids in them make combinations of unequal size: their starts are summed up once.
            count, self.size = self.size, 0
            for digits in map(self._digits, range(count)):
                self._starts.append(self.size)
                self.size += math.prod(grids[digit].size for grids, digit in zip(self._inner, digits, strict=True))

    def _digits(self, index: int) -> tuple[int, ...]:
        digits = []
        for grids in self._inner:
            index, digit = divmod(index, len(grids))
            digits.append(digit)
        return tuple(digits)

    def chosen(self, index: int) -> Chosen:
        """Which value each grid has in combination `index`."""
        if self._flat:
            digits, rest = self._digits(index), 0
        else:
            number = bisect.bisect_right(self._starts, index) - 1
            digits, rest = self._digits(number), index - self._starts[number]
        values: dict[Path, tuple[int, Chosen]] = {}
        for (path, _), grids, digit in zip(self._outer, self._inner, digits, strict=True):
            rest, inner = divmod(rest, grids[digit].size)
            values[path] = (digit, grids[digit].chosen(inner))
        return Chosen(values)


@dataclass(frozen=True)
class Chosen:
    values: Mapping[Path, tuple[int, Chosen]] = field(default_factory=dict)
    """path (from the enclosing grid) -> index of the value, and the choices inside of it."""


def _order(path: Path) -> tuple[tuple[bool, int, str], ...]:
    return tuple((not isinstance(key, int), key if isinstance(key, int) else 0, str(key)) for key in path)
