"""Domains: what a searched value may be.

A domain is a small frozen value. `at(u)` maps a number u of [0, 1) to a value of it, so that whoever draws the number
decides how reproducible the value is; `sample()` draws the number itself.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, SupportsFloat

from tuner.error import SettingError

_LARGEST_BELOW_1 = 1.0 - 2.0**-53
_SMALLEST = 2.0**-54


@dataclass(frozen=True)
class Domain:
    """What a searched value may be. Subclasses define `at`, `is_valid` and `describe`."""

    def at(self, u: float) -> Any:
        """The value at `u` of [0, 1): uniform numbers give the domain's distribution."""
        raise NotImplementedError

    def is_valid(self, value: Any) -> bool:
        """True if the domain could give `value`."""
        raise NotImplementedError

    def describe(self) -> str:
        """The call that makes the domain, the same in every process: `uniform(0.0, 1.0)`."""
        raise NotImplementedError

    def sample(self, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        """Draw a value, or a list of `size` values.

        Args:
            config: what `sample_from` functions are called with.
            size: how many; with 1 the value itself is returned.
            random_state: None (python's global generator), a seed, a `random.Random` or a numpy generator.
        """
        draw = as_draw(random_state)
        values = [self._draw(draw, config) for _ in range(size)]
        return values[0] if size == 1 else values

    def _draw(self, draw: Callable[[], float], config: Any) -> Any:
        return self.at(draw())

    def __str__(self) -> str:
        return self.describe()


def as_draw(random_state: Any) -> Callable[[], float]:
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


@dataclass(frozen=True)
class Float(Domain):
    """A float between two bounds: uniform or log-uniform, rounded to multiples of `q` where that is given."""

    lower: float
    upper: float
    log: bool = False
    q: float | None = None

    def at(self, u: float) -> float:
        if self.log:
            value = self.lower * math.exp((math.log(self.upper) - math.log(self.lower)) * u)
        else:
            value = self.lower + (self.upper - self.lower) * u
        return self.quantize(value)

    def quantize(self, value: float) -> float:
        """The value that is meant by `value`: inside the bounds, and on the grid of `q`."""
        if self.q is not None:
            steps = min(max(round(value / self.q), round(self.lower / self.q)), round(self.upper / self.q))
            value = _multiple(steps, self.q)
        return min(max(value, self.lower), self.upper)

    def is_valid(self, value: Any) -> bool:
        return is_number(value) and self.lower <= value <= self.upper

    def describe(self) -> str:
        return _call(f"{'q' * (self.q is not None)}{'log' * self.log}uniform", self.lower, self.upper, self.q)


@dataclass(frozen=True)
class Normal(Domain):
    """A normally distributed float, rounded to multiples of `q` where that is given."""

    mean: float = 0.0
    sd: float = 1.0
    q: float | None = None

    def at(self, u: float) -> float:
        from statistics import NormalDist

        return self.quantize(NormalDist(self.mean, self.sd).inv_cdf(min(max(u, _SMALLEST), _LARGEST_BELOW_1)))

    def quantile(self, value: float) -> float:
        """The u of which `value` is the value."""
        from statistics import NormalDist

        return NormalDist(self.mean, self.sd).cdf(value)

    def quantize(self, value: float) -> float:
        """`value`, on the grid of `q`."""
        return value if self.q is None else _multiple(round(value / self.q), self.q)

    def is_valid(self, value: Any) -> bool:
        return is_number(value)

    def describe(self) -> str:
        return _call("randn" if self.q is None else "qrandn", self.mean, self.sd, self.q)


@dataclass(frozen=True)
class Integer(Domain):
    """An int: from `lower` to `upper - 1`; with `q` a multiple of it from `lower` to `upper`, both included."""

    lower: int
    upper: int
    log: bool = False
    q: int | None = None

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

    def is_valid(self, value: Any) -> bool:
        return is_number(value) and value == int(value) and self.lower <= value <= self.greatest

    def describe(self) -> str:
        return _call(f"{'q' * (self.q is not None)}{'log' * self.log}randint", self.lower, self.upper, self.q)


@dataclass(frozen=True)
class Categorical(Domain):
    """One of some values. A value that is a dict or list may hold domains: a branch."""

    categories: tuple[Any, ...]

    def index_at(self, u: float) -> int:
        """Which one, at `u` of [0, 1)."""
        return min(int(u * len(self.categories)), len(self.categories) - 1)

    def at(self, u: float) -> Any:
        return self.categories[self.index_at(u)]

    def is_valid(self, value: Any) -> bool:
        return any(same(value, category) for category in self.categories)

    def describe(self) -> str:
        return f"choice([{', '.join(describe(category) for category in self.categories)}])"

    def __len__(self) -> int:
        return len(self.categories)

    def __getitem__(self, index: int) -> Any:
        return self.categories[index]


@dataclass(frozen=True)
class Function(Domain):
    """What a function says, which sees the values that are drawn already."""

    func: Callable[..., Any]
    takes: Literal["nothing", "config", "spec"] = "config"

    def at(self, u: float) -> Any:
        raise TypeError("a sample_from has a value only together with the rest of its config")

    def call(self, config: Any) -> Any:
        """The function's value; `config` answers to `config["x"]`, `config.x` and `config.config.x`."""
        return self.func() if self.takes == "nothing" else self.func(config)

    def _draw(self, draw: Callable[[], float], config: Any) -> Any:
        return self.call(config)

    def is_valid(self, value: Any) -> bool:
        return True

    def describe(self) -> str:
        return f"sample_from({getattr(self.func, '__name__', type(self.func).__name__)})"


def is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, SupportsFloat):
        return False
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def _multiple(steps: int, q: float) -> float:
    """steps * q as a person would write it: 3 * 0.1 is 0.3."""
    return float(steps * Decimal(repr(q)))


def same(a: Any, b: Any) -> bool:
    """Equality that never raises and never answers with an array; True and 1 differ."""
    if a is b:
        return True
    if isinstance(a, bool) is not isinstance(b, bool):
        return False
    try:
        if type(a) is type(b):
            if hasattr(a, "equals"):  # a frame
                return bool(a.equals(b))
            if hasattr(a, "tolist"):  # an array or a tensor
                return bool(a.tolist() == b.tolist())
        return bool(a == b)
    except Exception:  # some refuse to be compared with what they do not know
        return repr(a) == repr(b)


def _call(name: str, *arguments: float | None) -> str:
    return f"{name}({', '.join(repr(argument) for argument in arguments if argument is not None)})"


_PLAIN = (str, int, float, bool, bytes, type(None))


def describe(value: Any) -> str:
    """A value as text that is the same in every process: no addresses, no bytecode."""
    if isinstance(value, Domain):
        return value.describe()
    if type(value) in _PLAIN:
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {describe(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(describe(item) for item in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(describe(item) for item in value)) + "}"
    name = getattr(value, "__qualname__", None)
    if name is not None:
        return f"{getattr(value, '__module__', '')}.{name}"
    text = repr(value)
    return text if " at 0x" not in text else f"<{type(value).__module__}.{type(value).__qualname__}>"
