"""Domains: what a searched value may be.

A domain is a small frozen value. `at(u)` maps a number u of [0, 1) to a value of it, so that whoever draws the number
decides how reproducible the value is; `sample()` draws the number itself.
"""

from __future__ import annotations

import inspect
import math
import operator
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, SupportsFloat

from trainables.settings import no_effect
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
    draw: Callable[[], float] | None = getattr(random_state, "random", None) or getattr(random_state, "random_sample", None)
    if draw is None:
        try:
            return random.Random(operator.index(random_state)).random
        except TypeError:
            raise SettingError(
                f"random_state={random_state!r} is not accepted; accepted are None, an int, a random.Random and a numpy generator"
            ) from None
    return lambda: float(draw())


# --- the domains ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Float(Domain):
    """A float between two bounds: uniform or log-uniform, rounded to multiples of `q` where that is given."""

    lower: float
    upper: float
    log: bool = False
    q: float | None = None

    def at(self, u: float) -> float:
        if self.log:
            low, high = math.log(self.lower), math.log(self.upper)
            value = math.exp(low + (high - low) * u)
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
        return _is_number(value) and self.lower <= value <= self.upper

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
        return _is_number(value)

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
        return _is_number(value) and value == int(value) and self.lower <= value <= self.greatest

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


# --- how users make them -------------------------------------------------------------------------------------

_MISSING: Any = object()


def uniform(lower: float, upper: float) -> Domain:
    """A float, uniform from `lower` to `upper`.

    >>> 0.0 <= uniform(0, 1).sample(random_state=1) < 1.0
    True
    """
    return Float(*_bounds("uniform", lower, upper))


def quniform(lower: float, upper: float, q: float) -> Domain:
    """A float, uniform, rounded to multiples of `q`; both bounds are multiples of `q` and can come."""
    low, high = _bounds("quniform", lower, upper)
    return Float(low, high, q=_step("quniform", low, high, q))


def loguniform(lower: float, upper: float, base: Any = _MISSING) -> Domain:
    """A float whose logarithm is uniform: 1e-4 to 1e-3 comes as often as 1e-3 to 1e-2. `base` has no effect."""
    _no_base("loguniform", base)
    return Float(*_bounds("loguniform", lower, upper, log=True), log=True)


def qloguniform(lower: float, upper: float, q: float, base: Any = _MISSING) -> Domain:
    """A float whose logarithm is uniform, rounded to multiples of `q`; both bounds are multiples of `q`."""
    _no_base("qloguniform", base)
    low, high = _bounds("qloguniform", lower, upper, log=True)
    return Float(low, high, log=True, q=_step("qloguniform", low, high, q))


def randn(mean: float = 0.0, sd: float = 1.0) -> Domain:
    """A float, normally distributed."""
    return Normal(_number("randn", "mean", mean), _positive("randn", "sd", sd))


def qrandn(mean: float, sd: float, q: float) -> Domain:
    """A float, normally distributed, rounded to multiples of `q`."""
    return Normal(_number("qrandn", "mean", mean), _positive("qrandn", "sd", sd), _positive("qrandn", "q", q))


def randint(lower: int, upper: int) -> Domain:
    """An int from `lower` to `upper - 1`.

    >>> randint(3, 4).sample()
    3
    """
    return Integer(*_whole_bounds("randint", lower, upper))


def qrandint(lower: int, upper: int, q: int = 1) -> Domain:
    """A multiple of `q` from `lower` to `upper`, `upper` included."""
    return _quantized("qrandint", lower, upper, q, log=False)


def lograndint(lower: int, upper: int, base: Any = _MISSING) -> Domain:
    """An int from `lower` to `upper - 1` whose logarithm is uniform. `base` has no effect."""
    _no_base("lograndint", base)
    return Integer(*_whole_bounds("lograndint", lower, upper, log=True), log=True)


def qlograndint(lower: int, upper: int, q: int, base: Any = _MISSING) -> Domain:
    """A multiple of `q` from `lower` to `upper`, `upper` included, whose logarithm is uniform."""
    _no_base("qlograndint", base)
    return _quantized("qlograndint", lower, upper, q, log=True)


def choice(categories: Iterable[Any]) -> Domain:
    """One of the values. Dicts and lists among them may hold domains, which are drawn where that branch is taken.

    >>> choice([{"kind": "adam"}, {"kind": "sgd", "momentum": uniform(0.5, 0.99)}]).is_valid({"kind": "adam"})
    True
    """
    try:
        values = tuple(categories)
    except TypeError:
        raise SettingError(f"choice({categories!r}): the categories are a sequence, e.g. choice([1, 2, 3])") from None
    if not values:
        raise SettingError("choice([]): there is nothing to choose from")
    return Categorical(values)


def sample_from(func: Callable[..., Any]) -> Domain:
    """What `func` says. It may look at the other values, also those that are functions themselves.

    Args:
        func: `lambda config: config["x"] * 2`, `lambda spec: spec.config.x * 2`, or a function without arguments.
            Python's and numpy's global generators are seeded while it runs, so that it draws the same again.
    """
    if not callable(func):
        raise SettingError(f"sample_from({func!r}): it needs a function, e.g. sample_from(lambda config: config['x'] * 2)")
    try:
        signature = inspect.signature(func)
    except (ValueError, TypeError):  # some builtins have none
        return Function(func, "nothing")
    for arguments in ((None,), ()):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        if not arguments:
            return Function(func, "nothing")
        first = next(iter(signature.parameters))
        return Function(func, "spec" if first == "spec" else "config")
    raise SettingError(f"sample_from({describe(func)}): the function is called with the config or with nothing, but needs {signature}")


def grid_search(values: Iterable[Any]) -> dict[str, list[Any]]:
    """Every one of the values, combined with every one of all other grids.

    >>> grid_search([1, 2])
    {'grid_search': [1, 2]}
    """
    try:
        listed = list(values)
    except TypeError:
        raise SettingError(f"grid_search({values!r}): the values are a sequence, e.g. grid_search([1, 2, 3])") from None
    if not listed:
        raise SettingError("grid_search([]): there is nothing to search")
    return {"grid_search": listed}


# --- what they are made with -----------------------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, SupportsFloat):
        return False
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def _number(call: str, name: str, value: Any) -> float:
    if not _is_number(value):
        raise SettingError(f"{call}: {name}={value!r} is not accepted; it is a finite number")
    return float(value)


def _positive(call: str, name: str, value: Any) -> float:
    number = _number(call, name, value)
    if number <= 0:
        raise SettingError(f"{call}: {name}={value!r} is not accepted; it is a number above 0")
    return number


def _whole(call: str, name: str, value: Any) -> int:
    if not _is_number(value) or float(value) != int(value):
        raise SettingError(f"{call}: {name}={value!r} is not accepted; it is a whole number")
    return int(value)


def _bounds(call: str, lower: Any, upper: Any, *, log: bool = False) -> tuple[float, float]:
    low, high = _number(call, "lower", lower), _number(call, "upper", upper)
    _check_bounds(call, low, high, log)
    return low, high


def _whole_bounds(call: str, lower: Any, upper: Any, *, log: bool = False) -> tuple[int, int]:
    low, high = _whole(call, "lower", lower), _whole(call, "upper", upper)
    _check_bounds(call, low, high, log)
    return low, high


def _check_bounds(call: str, low: float, high: float, log: bool) -> None:
    if low >= high:
        raise SettingError(f"{call}({low!r}, {high!r}): lower is not below upper")
    if log and low <= 0:
        raise SettingError(f"{call}({low!r}, {high!r}): lower is above 0 on a log scale; bounds are given as they are, not as logarithms")


def _step(call: str, low: float, high: float, q: Any) -> float:
    step = _positive(call, "q", q)
    for name, bound in (("lower", low), ("upper", high)):
        if not math.isclose(bound / step, round(bound / step), rel_tol=1e-9, abs_tol=1e-9):
            raise SettingError(f"{call}({low!r}, {high!r}, q={q!r}): {name} is not a multiple of q")
    return step


def _quantized(call: str, lower: Any, upper: Any, q: Any, *, log: bool) -> Integer:
    low, high = _whole_bounds(call, lower, upper, log=log)
    step = _whole(call, "q", q)
    if step < 1:
        raise SettingError(f"{call}: q={q!r} is not accepted; it is 1, 2, ...")
    domain = Integer(low, high, log=log, q=step)
    if domain.least > domain.greatest:
        raise SettingError(f"{call}({low}, {high}, q={step}): there is no multiple of q between the bounds")
    return domain


def _no_base(call: str, base: Any) -> None:
    if base is not _MISSING:
        no_effect(f"{call}(base={base!r})", "the values do not depend on the base of the logarithm")


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
        return bool(a == b)
    except (ValueError, TypeError):
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
