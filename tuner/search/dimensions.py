"""A search space as dimensions: the flat, bounded numbers that libraries search, and configs of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from trainables.quick_dataclass import dataclass
from tuner.error import SettingError
from tuner.search.domains import Categorical, Domain, Float, Integer, NormalFloat, describe
from tuner.search.fitting import check_point, misfit, nested, searched
from tuner.search.resolve import HashDraw, Space
from tuner.search.space_tree import Branches, GridValues, Items, Leaf, Node

Point = dict[str, Any]
"""A value for each dimension that has an effect, by name."""
ACCEPTED = (
    "accepted are uniform, loguniform, randint, lograndint, their quantized forms, randn, qrandn, choice, sample_from"
)
_TAIL = 1e-9


@dataclass(frozen=True)
class Dimension:
    """One searched number.

    Args:
        name: its path in the config, "model/lr"; inside value 1 of a choice, "optimizer[1]/lr".
        domain: what is drawn from in the end.
        kind: "choice": the number of a value.
        low, high: the bounds, both included.
        log: search it on a log scale.
        parent: a choice, and the number of the one of its values with which this has an effect; None: it always has.
    """

    name: str
    domain: Domain
    kind: Literal["float", "int", "choice"]
    low: float
    high: float
    log: bool = False
    parent: tuple[str, int] | None = None

    @property
    def size(self) -> int:
        """How many values there are, of an int or a choice."""
        return int(self.high) - int(self.low) + 1

    def within(self, number: Any) -> Any:
        """The number inside the bounds: libraries overstep them by a rounding error."""
        bounded = min(max(float(number), self.low), self.high)
        return bounded if self.kind == "float" else round(bounded)

    def value_of(self, number: Any) -> Any:
        """The domain's value that a number means; not of a choice."""
        number = self.within(number)
        if isinstance(self.domain, NormalFloat):
            return self.domain.at(number)
        if isinstance(self.domain, Integer) and not self.log:
            return self.domain.least + number * (self.domain.q or 1)
        assert isinstance(self.domain, (Float, Integer))
        return self.domain.quantize(number)

    def number_of(self, value: Any) -> Any:
        """The number that means a value; of a choice its number."""
        if isinstance(self.domain, NormalFloat):
            return self.within(self.domain.quantile(value))
        if isinstance(self.domain, Integer) and not self.log:
            return self.within((value - self.domain.least) / (self.domain.q or 1))
        return self.within(value)


def dimensions_of(root: Node, who: str) -> Iterator[Dimension]:
    """The dimensions of a space; what has a single value is none. `who` searches it, for the errors."""
    return _found(root, "", None, who)


def _found(node: Node, name: str, parent: tuple[str, int] | None, who: str) -> Iterator[Dimension]:
    if isinstance(node, Leaf):
        yield from _of_leaf(node.domain, name, parent, who)
    elif isinstance(node, Branches):
        count = len(node.nodes)
        if node.domain.own_sampler is not None:
            raise SettingError(f"{who} cannot search {name!r}: its library draws, not the sampler of the choice")
        if count > 1:
            yield Dimension(name, node.domain, "choice", 0, count - 1, parent=parent)
        for index, inner in enumerate(node.nodes):
            yield from _found(inner, f"{name}[{index}]", (name, index) if count > 1 else parent, who)
    elif isinstance(node, Items):
        for key, inner in node.nodes:
            yield from _found(inner, f"{name}/{key}" if name else str(key), parent, who)
    elif isinstance(node, GridValues):
        raise SettingError(f"{who} cannot search the grid_search at {name!r}; make it a choice([...])")


def _of_leaf(domain: Domain, name: str, parent: tuple[str, int] | None, who: str) -> Iterator[Dimension]:
    if domain.own_sampler is not None:
        raise SettingError(f"{who} cannot search {name!r}: its library draws, not the sampler of {domain}")
    if isinstance(domain, NormalFloat):
        yield Dimension(name, domain, "float", _TAIL, 1 - _TAIL, parent=parent)  # its quantile
    elif isinstance(domain, Float):
        if not math.isfinite(domain.upper - domain.lower):
            raise SettingError(f"{who} cannot search {name!r}, {describe(domain)}: it needs bounds")
        yield Dimension(name, domain, "float", domain.lower, domain.upper, domain.log, parent)
    elif not isinstance(domain, Integer):
        raise SettingError(
            f"{who} cannot search {name!r}: {describe(domain)} is a domain of a kind that it does not know; {ACCEPTED}"
        )
    elif domain.least < domain.greatest:
        if domain.log:
            yield Dimension(name, domain, "int", domain.least, domain.greatest, True, parent)
        else:
            steps = (domain.greatest - domain.least) // (domain.q or 1)
            yield Dimension(name, domain, "int", 0, steps, parent=parent)


class DimensionSpace:
    """A search space with its dimensions: configs from points, and points from configs.

    Args:
        config: the space, as `Space` takes it.
        who: the searcher, for errors.

    Raises:
        SettingError: a grid, a domain of another kind, or nothing to search.
    """

    def __init__(self, config: Mapping[str, Any], who: str) -> None:
        self.space = Space(config)
        self.dimensions = {each.name: each for each in dimensions_of(self.space.root, who)}
        if not self.dimensions:
            raise SettingError(f"{who} has nothing to search: no value of the space is a domain; {ACCEPTED}")

    def config(self, point: Point, key: str) -> dict[str, Any]:
        """The config that a point means; what it lacks is a function of `key`."""
        return self.space.resolve(_PointDraw(self.dimensions, point, HashDraw(key)))

    def point(self, config: Mapping[str, Any]) -> Point:
        """The point that means a config, or the part of it that it has; of choices the first value that fits."""
        found = searched(self.space.root, config)
        return {name: self.dimensions[name].number_of(value) for name, _, value in found if name in self.dimensions}

    def given(self, point: Mapping[str, Any], what: str, *, whole: bool = False) -> Point:
        """The point of a config that a user gave, nested or flat. Raises SettingError for what is not of this space."""
        root = self.space.root
        own = dict(root.nodes) if isinstance(root, Items) else {}
        config = nested({name: value for name, value in point.items() if name not in own})
        config |= {name: value for name, value in point.items() if name in own}
        check_point(root, config, what, whole=whole)
        return self.point(config)

    def misfit(self, config: Mapping[str, Any]) -> str | None:
        """Why a whole config is not of this space; None: it is."""
        return misfit(self.space.root, config)


@dataclass(frozen=True)
class _PointDraw:
    """Values of a point."""

    dimensions: Mapping[str, Dimension]
    point: Point
    otherwise: HashDraw

    def value(self, name: str, domain: Domain) -> Any:
        if name in self.point:
            return self.dimensions[name].value_of(self.point[name])
        return self.otherwise.value(name, domain)

    def index(self, name: str, domain: Categorical) -> int:
        if name in self.point:
            return int(self.dimensions[name].within(self.point[name]))
        return self.otherwise.index(name, domain)

    def seed(self, name: str) -> int:
        return self.otherwise.seed(name)
