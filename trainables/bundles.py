"""Bundles of resources as Ray's scripts give them, and what a trial was given in the same form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from trainables.errors import InvalidSettingError
from trainables.validation import no_effect, unknown_name

STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
_RAYS = ("bundle_label_selector", "lifetime", "name")

Bundle = dict[str, float]


class PlacementGroupFactory:
    """Bundles of resources, wherever resources are accepted.

    A trial of a function or a class is one process. It gets the sum of the bundles, on one machine: on a cluster a node
    has to hold all of it. The workers of a trainer, which may be on several nodes, are described by `ScalingConfig`.

    Args:
        bundles: dicts of resources, from one on; an empty one counts nothing.
        strategy: Ray's: "PACK", "STRICT_PACK", "SPREAD" or "STRICT_SPREAD". The first two are what happens; the others,
            of several bundles, and the further arguments that Ray takes, have no effect, and a warning says so.

    Raises InvalidSettingError for what are no bundles, for amounts that are none, for bundles that ask for nothing, for
    another strategy, and for an argument that Ray does not take.

    Example:
        >>> PlacementGroupFactory([{"CPU": 1}, {"CPU": 2, "GPU": 0.5}]).required_resources
        {'CPU': 3.0, 'GPU': 0.5}
    """

    def __init__(
        self, bundles: Sequence[Mapping[str, float]], strategy: str = "PACK", *arguments: Any, **named: Any
    ) -> None:
        counted = _checked(bundles)
        if strategy not in STRATEGIES:
            raise InvalidSettingError(
                f"PlacementGroupFactory(strategy={strategy!r}) is not accepted; accepted: {', '.join(STRATEGIES)}"
            )
        for name in named:
            if name not in _RAYS and not name.startswith("_"):
                known = ("bundles", "strategy", *_RAYS)
                raise InvalidSettingError(unknown_name("argument of PlacementGroupFactory", name, known))
        self.head_bundle_is_empty = not counted[0]
        """True if the trial's own process asks for nothing."""
        self.bundles = counted[1:] if self.head_bundle_is_empty else counted
        """What is asked for, without an empty head, and without amounts of 0."""
        self.strategy = strategy
        vain = [repr(argument) for argument in arguments]
        if strategy.endswith("SPREAD") and len(self.bundles) > 1:
            vain.append(f"strategy={strategy!r}")
        vain += [f"{name}={value!r}" for name, value in named.items()]
        if vain:
            no_effect(
                f"PlacementGroupFactory({', '.join(vain)})",
                f"a trial is one process, which gets the sum of its bundles, {self.required_resources}, on one machine",
            )

    @property
    def required_resources(self) -> Bundle:
        """The sum of the bundles, under the names that they have there."""
        return _summed(self.bundles)

    @property
    def head_cpus(self) -> float:
        """Cores of the first bundle."""
        head = {} if self.head_bundle_is_empty else self.bundles[0]
        return head.get("CPU", head.get("cpu", 0.0))

    def to_placement_group(self) -> NoReturn:
        """Ray's, which schedules actors. Raises InvalidSettingError: there is nothing to be placed here."""
        raise _nothing_to_place("PlacementGroupFactory", "the factory itself")

    def _given(self) -> list[Bundle]:
        return [{}, *self.bundles] if self.head_bundle_is_empty else self.bundles

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlacementGroupFactory):
            return NotImplemented
        return (other._given(), other.strategy) == (self._given(), self.strategy)

    def __hash__(self) -> int:
        return hash((self.strategy, *(tuple(sorted(bundle.items())) for bundle in self._given())))

    def __repr__(self) -> str:
        strategy = "" if self.strategy == "PACK" else f", strategy={self.strategy!r}"
        return f"PlacementGroupFactory({self._given()!r}{strategy})"


class TrialResources(dict[str, float]):
    """What a trial was given, `{"cpu": 1.0, "gpu": 0.5}`; also by Ray's names, and with what its factories have.

    A trial that asked for several bundles is one process, which has the sum: that is its one bundle, and its head.

    >>> given = TrialResources(cpu=2.0)
    >>> given.get("CPU"), given.head_cpus, given.required_resources
    (2.0, 2.0, {'CPU': 2.0})
    """

    strategy = "PACK"
    head_bundle_is_empty = False

    @property
    def required_resources(self) -> Bundle:
        """All of it, by Ray's names."""
        return {name.upper() if name in ("cpu", "gpu") else name: amount for name, amount in self.items()}

    @property
    def bundles(self) -> list[Bundle]:
        """One bundle: a trial is one process."""
        return [self.required_resources]

    @property
    def cpu(self) -> float:
        """Cores."""
        return float(self.get("cpu", 0.0))

    @property
    def gpu(self) -> float:
        """GPUs, or the share of one."""
        return float(self.get("gpu", 0.0))

    head_cpus = cpu

    def to_placement_group(self) -> NoReturn:
        """Ray's, which schedules actors. Raises InvalidSettingError: there is nothing to be placed here."""
        raise _nothing_to_place("get_trial_resources()", "PlacementGroupFactory(its bundles)")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PlacementGroupFactory):
            return other._given() == self.bundles and other.strategy == self.strategy
        return super().__eq__(other)

    __hash__ = None  # as of every dict

    def __missing__(self, name: str) -> float:
        if name in ("CPU", "GPU"):
            return self[name.lower()]
        raise KeyError(name)

    def get(self, name: str, default: Any = None) -> Any:
        """The amount of a resource."""
        return super().get(name.lower() if name in ("CPU", "GPU") else name, default)


def _nothing_to_place(whose: str, instead: str) -> InvalidSettingError:
    return InvalidSettingError(
        f"{whose}.to_placement_group() is not here: trials are processes and no actors; give {instead} wherever "
        "resources are accepted"
    )


def _checked(bundles: Any) -> list[Bundle]:
    listed = isinstance(bundles, Sequence) and bundles
    if not listed or not all(isinstance(each, Mapping) for each in bundles):
        raise InvalidSettingError(
            f'PlacementGroupFactory(bundles={bundles!r}): accepted is a list of dicts like [{{"CPU": 1}}, ...]'
        )
    for bundle in bundles:
        for name, amount in bundle.items():
            number = isinstance(amount, int | float) and not isinstance(amount, bool)
            if not number or not math.isfinite(amount) or amount < 0:
                raise InvalidSettingError(
                    f"PlacementGroupFactory: {name}={amount!r}: a number from 0 is accepted as the amount of a resource"
                )
    counted = [{name: float(amount) for name, amount in bundle.items() if amount} for bundle in bundles]
    if not any(counted):
        raise InvalidSettingError(f"PlacementGroupFactory(bundles={bundles!r}) asks for nothing")
    return counted


def _summed(bundles: Sequence[Mapping[str, float]]) -> Bundle:
    total: Bundle = {}
    for bundle in bundles:
        for name, amount in bundle.items():
            total[name] = total.get(name, 0.0) + amount
    return total
