"""Constructors of search-space domains: `uniform`, `choice`, `sample_from`, `grid_search` and the others."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from trainables.validation import no_effect
from tuner.error import SettingError, require
from tuner.search.domains import Categorical as Categorical
from tuner.search.domains import Domain as Domain
from tuner.search.domains import Float as Float
from tuner.search.domains import Function as Function
from tuner.search.domains import Integer as Integer
from tuner.search.domains import Normal as Normal
from tuner.search.domains import describe, is_number

N = TypeVar("N", int, float)
_MISSING: Any = object()
BOUNDED = ("uniform", "quniform", "loguniform", "qloguniform", "randint", "qrandint", "lograndint", "qlograndint")
"""The domains of numbers between bounds."""


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
    return Categorical(tuple(_listed("choice", categories, "categories", to="choose from")))


def sample_from(func: Callable[..., Any]) -> Domain:
    """What `func` says. It may look at the other values, also those that are functions themselves.

    Args:
        func: `lambda config: config["x"] * 2`, `lambda spec: spec.config.x * 2`, or a function without arguments.
            Python's and numpy's global generators are seeded while it runs, so that it draws the same again.
    """
    if not callable(func):
        raise SettingError(
            f"sample_from({func!r}): it needs a function, e.g. sample_from(lambda config: config['x'] * 2)"
        )
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
    raise SettingError(
        f"sample_from({describe(func)}): the function is called with the config or with nothing, but needs {signature}"
    )


def grid_search(values: Iterable[Any]) -> dict[str, list[Any]]:
    """Every one of the values, combined with every one of all other grids.

    >>> grid_search([1, 2])
    {'grid_search': [1, 2]}
    """
    return {"grid_search": _listed("grid_search", values, "values", to="search")}


def _number(call: str, name: str, value: Any) -> float:
    require(is_number(value), f"{call}: {name}", value, "it is a finite number")
    return float(value)


def _positive(call: str, name: str, value: Any) -> float:
    number = _number(call, name, value)
    require(number > 0, f"{call}: {name}", value, "it is a number above 0")
    return number


def _whole(call: str, name: str, value: Any) -> int:
    require(is_number(value) and float(value) == int(value), f"{call}: {name}", value, "it is a whole number")
    return int(value)


def _bounds(call: str, lower: Any, upper: Any, *, log: bool = False) -> tuple[float, float]:
    return _ordered(call, _number(call, "lower", lower), _number(call, "upper", upper), log)


def _whole_bounds(call: str, lower: Any, upper: Any, *, log: bool = False) -> tuple[int, int]:
    return _ordered(call, _whole(call, "lower", lower), _whole(call, "upper", upper), log)


def _ordered(call: str, low: N, high: N, log: bool) -> tuple[N, N]:
    if low >= high:
        raise SettingError(f"{call}({low!r}, {high!r}): lower is not below upper")
    if log and low <= 0:
        raise SettingError(
            f"{call}({low!r}, {high!r}): lower must be above 0 on a log scale (give the bounds, not their logarithms)"
        )
    return low, high


def _listed(call: str, values: Any, what: str, *, to: str) -> list[Any]:
    try:
        listed = list(values)
    except TypeError:
        raise SettingError(f"{call}({values!r}): the {what} are a sequence, e.g. {call}([1, 2, 3])") from None
    if not listed:
        raise SettingError(f"{call}([]): there is nothing to {to}")
    return listed


def _step(call: str, low: float, high: float, q: Any) -> float:
    step = _positive(call, "q", q)
    for name, bound in (("lower", low), ("upper", high)):
        if not math.isclose(bound / step, round(bound / step), rel_tol=1e-9, abs_tol=1e-9):
            raise SettingError(f"{call}({low!r}, {high!r}, q={q!r}): {name} is not a multiple of q")
    return step


def _quantized(call: str, lower: Any, upper: Any, q: Any, *, log: bool) -> Integer:
    low, high = _whole_bounds(call, lower, upper, log=log)
    step = _whole(call, "q", q)
    require(step >= 1, f"{call}: q", q, "it is 1, 2, ...")
    domain = Integer(low, high, log=log, q=step)
    if domain.least > domain.greatest:
        raise SettingError(f"{call}({low}, {high}, q={step}): there is no multiple of q between the bounds")
    return domain


def _no_base(call: str, base: Any) -> None:
    if base is not _MISSING:
        no_effect(f"{call}(base={base!r})", "the values do not depend on the base of the logarithm")
