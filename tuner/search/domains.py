"""Domains of numbers: frozen values, which say what a searched value may be and how it is distributed."""

from __future__ import annotations

import math
from dataclasses import field, replace
from decimal import Decimal
from typing import Any, ClassVar, Self

from trainables.quick_dataclass import dataclass
from tuner.error import SettingError
from tuner.search import bounds
from tuner.search.bounds import is_number as is_number
from tuner.search.choices import Categorical as Categorical
from tuner.search.choices import Function as Function
from tuner.search.domain import CHOSEN_ALREADY, call_text
from tuner.search.domain import Domain as Domain
from tuner.search.domain import describe as describe
from tuner.search.domain import same as same
from tuner.search.domain_samplers import LogUniform, Quantized, Sampler, Uniform
from tuner.search.domain_samplers import Normal as NormalSampler

_LARGEST_BELOW_1 = 1.0 - 2.0**-53
_SMALLEST = 2.0**-54


@dataclass(frozen=True)
class _Numbers(Domain):
    """Numbers between two bounds."""

    lower: Any
    upper: Any
    log: bool = False
    q: Any = None
    own_sampler: Sampler | None = field(default=None, repr=False, kw_only=True)
    default_sampler_cls: ClassVar[type[Sampler]] = Uniform
    _Uniform: ClassVar = Uniform
    _LogUniform: ClassVar = LogUniform

    @property
    def sampler(self) -> Sampler:
        plain = self.own_sampler or (LogUniform() if self.log else Uniform())
        return plain if self.q is None else Quantized(plain, self.q)

    def set_sampler(self, sampler: Sampler, allow_override: bool = False) -> None:
        if not allow_override and (self.log or self.q is not None or self.own_sampler is not None):
            raise SettingError(CHOSEN_ALREADY.format(self))
        made = self.sampled_by(sampler)
        kept = {name: getattr(made, name) for name in ("log", "q", "own_sampler")}
        kept = kept if type(made) is type(self) else {"log": False, "q": None, "own_sampler": sampler}
        for name, value in kept.items():
            object.__setattr__(self, name, value)

    def sampled_by(self, sampler: Sampler) -> Domain:
        match sampler:
            case Uniform():
                return self.uniform()
            case LogUniform():
                return self.loguniform()
            case Quantized(inner, q):
                made = self.sampled_by(inner)
                return made.quantized(q) if isinstance(made, _Numbers) else made
        return replace(self, log=False, q=None, own_sampler=sampler)

    def uniform(self) -> Self:
        """The same bounds, drawn uniformly."""
        raise NotImplementedError

    def loguniform(self, base: float = 10) -> Self:
        """The same bounds, with a uniform logarithm."""
        raise NotImplementedError

    def quantized(self, q: Any) -> Self:
        """The same, rounded to multiples of `q`."""
        raise NotImplementedError

    @property
    def domain_str(self) -> str:
        return f"({self.lower}, {self.upper})"

    def _text(self, name: str) -> str:
        own = "" if self.own_sampler is None else f".sampled_by({describe(self.own_sampler)})"
        return call_text(f"{'q' * (self.q is not None)}{'log' * self.log}{name}", self.lower, self.upper, self.q) + own


@dataclass(frozen=True)
class Float(_Numbers):
    """A float between two bounds: uniform or log-uniform, rounded to multiples of `q` where that is given.

    >>> Float(0, 1).uniform().quantized(0.1) == Float(0.0, 1.0, q=0.1)
    True
    """

    lower: float
    upper: float
    q: float | None = None
    _Normal: ClassVar = NormalSampler

    def __post_init__(self) -> None:
        for name, open_end in (("lower", -math.inf), ("upper", math.inf)):
            given = getattr(self, name)
            unbounded = given is None or given == open_end
            object.__setattr__(self, name, open_end if unbounded else bounds.number("Float", name, given))
        if not self.lower < self.upper:
            raise SettingError(f"Float({self.lower!r}, {self.upper!r}): lower is not below upper")

    def at(self, u: float) -> float:
        if self.own_sampler is not None:
            value: float = self.own_sampler.at(self, u)
        elif self.log:
            value = self.lower * math.exp((math.log(self.upper) - math.log(self.lower)) * u)
        elif math.isinf(self.upper - self.lower):
            low, high = bounds.bounds("Float", self.lower, self.upper)
            value = low * (1 - u) + high * u
        else:
            value = self.lower + (self.upper - self.lower) * u
        return self.quantize(value)

    def quantize(self, value: float) -> float:
        """The value that is meant by `value`: inside the bounds, and on the grid of `q`."""
        if self.q is not None:
            steps = min(max(round(value / self.q), round(self.lower / self.q)), round(self.upper / self.q))
            value = _multiple(steps, self.q)
        return min(max(value, self.lower), self.upper)

    def uniform(self) -> Float:
        return Float(*bounds.bounds("Float.uniform", self.lower, self.upper))

    def loguniform(self, base: float = 10) -> Float:
        return Float(*bounds.bounds("Float.loguniform", self.lower, self.upper, log=True), log=True)

    def normal(self, mean: float = 0.0, sd: float = 1.0) -> Float:
        """A normally distributed float. Raises SettingError for bounds: none hold then."""
        if not math.isinf(self.lower) or not math.isinf(self.upper):
            raise SettingError(f"Float({self.lower!r}, {self.upper!r}).normal(...): a normal float has no bounds")
        mean = bounds.number("Float.normal", "mean", mean)
        return NormalFloat(mean, bounds.positive("Float.normal", "sd", sd))

    def quantized(self, q: float) -> Float:
        return replace(self, q=bounds.step("Float.quantized", self.lower, self.upper, q))

    def sampled_by(self, sampler: Sampler) -> Domain:
        return (
            self.normal(sampler.mean, sampler.sd) if isinstance(sampler, NormalSampler) else super().sampled_by(sampler)
        )

    def cast(self, value: Any) -> float:
        return float(value)

    def is_valid(self, value: Any) -> bool:
        return is_number(value) and self.lower <= value <= self.upper

    def describe(self) -> str:
        return self._text("uniform")


@dataclass(frozen=True)
class NormalFloat(Float):
    """A normally distributed float, rounded to multiples of `q` where that is given."""

    lower: float = field(default=-math.inf, init=False, repr=False)
    upper: float = field(default=math.inf, init=False, repr=False)
    log: bool = field(default=False, init=False, repr=False)
    q: float | None = field(default=None, kw_only=True)
    mean: float = 0.0
    sd: float = 1.0

    @property
    def sampler(self) -> Sampler:
        plain = self.own_sampler or NormalSampler(self.mean, self.sd)
        return plain if self.q is None else Quantized(plain, self.q)

    def at(self, u: float) -> float:
        if self.own_sampler is not None:
            return self.quantize(self.own_sampler.at(self, u))
        from statistics import NormalDist

        return self.quantize(NormalDist(self.mean, self.sd).inv_cdf(min(max(u, _SMALLEST), _LARGEST_BELOW_1)))

    def quantile(self, value: float) -> float:
        """The u of which `value` is the value."""
        from statistics import NormalDist

        return NormalDist(self.mean, self.sd).cdf(value)

    def quantize(self, value: float) -> float:
        return value if self.q is None else _multiple(round(value / self.q), self.q)

    def quantized(self, q: float) -> NormalFloat:
        return replace(self, q=bounds.positive("Float.quantized", "q", q))

    def is_valid(self, value: Any) -> bool:
        return is_number(value)

    def describe(self) -> str:
        own = "" if self.own_sampler is None else f".sampled_by({describe(self.own_sampler)})"
        return call_text("randn" if self.q is None else "qrandn", self.mean, self.sd, self.q) + own


@dataclass(frozen=True)
class Integer(_Numbers):
    """An int: from `lower` to `upper - 1`; with `q` a multiple of it from `lower` to `upper`, both included."""

    lower: int
    upper: int
    q: int | None = None

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            object.__setattr__(self, name, bounds.whole("Integer", name, getattr(self, name)))

    @property
    def least(self) -> int:
        """The smallest value."""
        return self.lower if self.q is None else -(-self.lower // self.q) * self.q

    @property
    def greatest(self) -> int:
        """The largest value."""
        return self.upper - 1 if self.q is None else self.upper // self.q * self.q

    def at(self, u: float) -> int:
        step = self.q or 1
        if self.own_sampler is not None:
            return self.quantize(self.own_sampler.at(self, u))
        if not self.log:
            return self.least + int(u * ((self.greatest - self.least) // step + 1)) * step
        low = math.log(self.least)
        if self.q is None:
            return min(max(math.floor(math.exp(low + (math.log(self.upper) - low) * u)), self.least), self.greatest)
        # Half a step beyond each bound, so that the bounds are rounded to as often as their neighbours.
        low = math.log(max(self.least - step / 2, 0.5))
        return self.quantize(math.exp(low + (math.log(self.greatest + step / 2) - low) * u))

    def quantize(self, value: float) -> int:
        """The value that is meant by `value`: inside the bounds, and on the grid of `q`."""
        step = self.q or 1
        return min(max(round(value / step) * step, self.least), self.greatest)

    def uniform(self) -> Integer:
        return Integer(*bounds.whole_bounds("Integer.uniform", self.lower, self.upper))

    def loguniform(self, base: float = 10) -> Integer:
        return Integer(*bounds.whole_bounds("Integer.loguniform", self.lower, self.upper, log=True), log=True)

    def quantized(self, q: int) -> Integer:
        made = replace(self, q=bounds.whole_step("Integer.quantized", q))
        if made.least > made.greatest:
            raise SettingError(
                f"Integer({self.lower}, {self.upper}).quantized({q}): there is no multiple of q between the bounds"
            )
        return made

    def cast(self, value: Any) -> int:
        return int(value)

    def is_valid(self, value: Any) -> bool:
        return is_number(value) and value == int(value) and self.lower <= value <= self.greatest

    def describe(self) -> str:
        return self._text("randint")


Normal = NormalFloat
"""Its name in the experiments of older versions, which unpickle it."""


def _multiple(steps: int, q: float) -> float:
    """steps * q as a person would write it: 3 * 0.1 is 0.3."""
    return float(steps * Decimal(repr(q)))
