"""Samplers: how the values of a domain are distributed, as objects that a domain has and that can be looked at.

`tune.quniform(0, 1, 0.1).sampler` is `Quantized(Uniform(), 0.1)`. Searchers read them; a `Sampler` of one's own draws.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from typing import Any

from trainables.quick_dataclass import dataclass
from tuner.error import SettingError

RandomState = Any
"""None (python's global generator), a seed, a `random.Random`, or a generator of numpy's."""


class Sampler:
    """How values of a domain are drawn. One's own defines `sample`; those of this package know it by the domain."""

    def sample(self, domain: Any, config: Any = None, size: int = 1, random_state: RandomState = None) -> Any:
        """Draw a value of `domain`, or with `size` above 1 a list of them.

        Args:
            domain: the `Domain` whose values are drawn; its bounds are attributes.
            config: what functions are called with.
            size: how many.
            random_state: where the numbers come from. In a run it is a numpy generator whose seed is a function of the
                experiment's seed, so that what is drawn from it alone is drawn again after a resume.
        """
        return domain.sampled_by(self).sample(config, size, random_state)

    def at(self, domain: Any, u: float) -> Any:
        """The value of `domain` at `u` of [0, 1)."""
        if type(self).sample is not Sampler.sample:
            return self.sample(domain, size=1, random_state=generator(int(u * 2**53)))
        settled = domain.sampled_by(self)
        if settled.own_sampler is self:
            raise NotImplementedError(f"{type(self).__name__} defines no sample(domain, config, size, random_state)")
        return settled.at(u)

    def __str__(self) -> str:
        return type(self).__name__


class BaseSampler(Sampler):
    """How a function draws: by what it says. Also a base for samplers of one's own."""

    def __str__(self) -> str:
        return "Base" if type(self) is BaseSampler else super().__str__()


@dataclass(frozen=True)
class Uniform(Sampler):
    """Every value as often as every other."""

    __str__ = Sampler.__str__


@dataclass(frozen=True)
class LogUniform(Sampler):
    """The logarithm is uniform. The values do not depend on its `base`."""

    base: float = 10
    __str__ = Sampler.__str__


@dataclass(frozen=True)
class Normal(Sampler):
    """Normally distributed. Raises SettingError for an `sd` that is not above 0."""

    mean: float = 0.0
    sd: float = 1.0
    __str__ = Sampler.__str__

    def __post_init__(self) -> None:
        if not self.sd > 0:
            raise SettingError(f"Normal(sd={self.sd!r}) is not accepted; it is a number above 0")


@dataclass(frozen=True)
class Grid(Sampler):
    """Each value once: `tune.grid_search`."""

    __str__ = Sampler.__str__

    def sample(self, domain: Any, config: Any = None, size: int = 1, random_state: RandomState = None) -> Any:
        raise SettingError(f"{domain} is a grid: its values all come, and none is drawn")


@dataclass(frozen=True)
class Quantized(Sampler):
    """What another sampler draws, rounded to multiples of `q`."""

    sampler: Sampler
    q: float
    __str__ = Sampler.__str__

    def get_sampler(self) -> Sampler:
        """The other sampler."""
        return self.sampler


def as_draw(random_state: RandomState) -> Callable[[], float]:
    """A function that gives uniform numbers of [0, 1)."""
    if random_state is None:
        return random.random
    if isinstance(random_state, (int, str)):
        return random.Random(random_state).random
    draw: Callable[[], float] | None = getattr(random_state, "random", None) or getattr(
        random_state, "random_sample", None
    )
    if draw is None:
        try:
            return random.Random(operator.index(random_state)).random
        except TypeError:
            raise SettingError(
                f"random_state={random_state!r} is not accepted; accepted are None, an int, a random.Random and a "
                "numpy generator"
            ) from None
    return lambda: float(draw())


def generator(random_state: RandomState) -> Any:
    """A generator of numpy's, for samplers of users; one that is given stays what it is."""
    if hasattr(random_state, "standard_normal"):
        return random_state
    import numpy

    seed = random_state if isinstance(random_state, int) else int(as_draw(random_state)() * 2**53)
    return numpy.random.default_rng(seed)
