"""Constructors of search-space domains: `uniform`, `choice`, `sample_from`, `grid_search` and the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from trainables.user_frames import from_the_call
from trainables.validation import no_effect
from tuner.error import SettingError
from tuner.search import bounds
from tuner.search.domain_samplers import BaseSampler as BaseSampler
from tuner.search.domain_samplers import Grid as Grid
from tuner.search.domain_samplers import LogUniform as LogUniform
from tuner.search.domain_samplers import Normal as Normal
from tuner.search.domain_samplers import Quantized as Quantized
from tuner.search.domain_samplers import RandomState as RandomState
from tuner.search.domain_samplers import Sampler as Sampler
from tuner.search.domain_samplers import Uniform as Uniform
from tuner.search.domains import Categorical as Categorical
from tuner.search.domains import Domain as Domain
from tuner.search.domains import Float as Float
from tuner.search.domains import Function as Function
from tuner.search.domains import Integer as Integer
from tuner.search.domains import NormalFloat as NormalFloat

_MISSING: Any = object()
BOUNDED = ("uniform", "quniform", "loguniform", "qloguniform", "randint", "qrandint", "lograndint", "qlograndint")
"""The domains of numbers between bounds."""


@from_the_call
def uniform(lower: float, upper: float) -> Domain:
    """A float, uniform from `lower` to `upper`.

    >>> 0.0 <= uniform(0, 1).sample(random_state=1) < 1.0
    True
    """
    return Float(*bounds.bounds("uniform", lower, upper))


@from_the_call
def quniform(lower: float, upper: float, q: float) -> Domain:
    """A float, uniform, rounded to multiples of `q`; both bounds are multiples of `q` and can come.

    Example:
        >>> tune.run(train, config={"dropout": tune.quniform(0, 0.5, 0.1)})
    """
    low, high = bounds.bounds("quniform", lower, upper)
    return Float(low, high, q=bounds.step("quniform", low, high, q))


@from_the_call
def loguniform(lower: float, upper: float, base: Any = _MISSING) -> Domain:
    """A float whose logarithm is uniform: 1e-4 to 1e-3 comes as often as 1e-3 to 1e-2. `base` has no effect.

    Example:
        >>> tune.run(train, config={"lr": tune.loguniform(1e-5, 1e-1)})
    """
    _no_base("loguniform", base)
    return Float(*bounds.bounds("loguniform", lower, upper, log=True), log=True)


@from_the_call
def qloguniform(lower: float, upper: float, q: float, base: Any = _MISSING) -> Domain:
    """A float whose logarithm is uniform, rounded to multiples of `q`; both bounds are multiples of `q`.

    Example:
        >>> tune.run(train, config={"lr": tune.qloguniform(1e-4, 1e-1, 1e-4)})
    """
    _no_base("qloguniform", base)
    low, high = bounds.bounds("qloguniform", lower, upper, log=True)
    return Float(low, high, log=True, q=bounds.step("qloguniform", low, high, q))


@from_the_call
def randn(mean: float = 0.0, sd: float = 1.0) -> Domain:
    """A float, normally distributed.

    Example:
        >>> tune.run(train, config={"shift": tune.randn(0, 1)})
    """
    return NormalFloat(bounds.number("randn", "mean", mean), bounds.positive("randn", "sd", sd))


@from_the_call
def qrandn(mean: float, sd: float, q: float) -> Domain:
    """A float, normally distributed, rounded to multiples of `q`.

    Example:
        >>> tune.run(train, config={"shift": tune.qrandn(0, 1, 0.1)})
    """
    return NormalFloat(
        bounds.number("qrandn", "mean", mean), bounds.positive("qrandn", "sd", sd), q=bounds.positive("qrandn", "q", q)
    )


@from_the_call
def randint(lower: int, upper: int) -> Domain:
    """An int from `lower` to `upper - 1`.

    >>> randint(3, 4).sample()
    3
    """
    return Integer(*bounds.whole_bounds("randint", lower, upper))


@from_the_call
def qrandint(lower: int, upper: int, q: int = 1) -> Domain:
    """A multiple of `q` from `lower` to `upper`, `upper` included.

    Example:
        >>> tune.run(train, config={"batch_size": tune.qrandint(16, 256, 16)})
    """
    return _quantized("qrandint", lower, upper, q, log=False)


@from_the_call
def lograndint(lower: int, upper: int, base: Any = _MISSING) -> Domain:
    """An int from `lower` to `upper - 1` whose logarithm is uniform. `base` has no effect.

    Example:
        >>> tune.run(train, config={"width": tune.lograndint(8, 1025)})
    """
    _no_base("lograndint", base)
    return Integer(*bounds.whole_bounds("lograndint", lower, upper, log=True), log=True)


@from_the_call
def qlograndint(lower: int, upper: int, q: int, base: Any = _MISSING) -> Domain:
    """A multiple of `q` from `lower` to `upper`, `upper` included, whose logarithm is uniform.

    Example:
        >>> tune.run(train, config={"width": tune.qlograndint(8, 1024, 8)})
    """
    _no_base("qlograndint", base)
    return _quantized("qlograndint", lower, upper, q, log=True)


@from_the_call
def choice(categories: Iterable[Any]) -> Domain:
    """One of the values. Dicts and lists among them may hold domains, which are drawn where that branch is taken.

    >>> choice([{"kind": "adam"}, {"kind": "sgd", "momentum": uniform(0.5, 0.99)}]).is_valid({"kind": "adam"})
    True
    """
    return Categorical(tuple(bounds.listed("choice", categories, "categories", to="choose from")))


@from_the_call
def sample_from(func: Callable[..., Any]) -> Domain:
    """What `func` says. It may look at the other values, also those that are functions themselves.

    Args:
        func: `lambda config: config["x"] * 2`, `lambda spec: spec.config.x * 2`, or a function without arguments.
            Python's and numpy's global generators are seeded while it runs, so that it draws the same again.

    Example:
        >>> tune.run(train, config={"a": tune.uniform(0, 1), "b": tune.sample_from(lambda config: 1 - config["a"])})
    """
    return Function(func)


@from_the_call
def grid_search(values: Iterable[Any]) -> dict[str, list[Any]]:
    """Every one of the values, combined with every one of all other grids.

    >>> grid_search([1, 2])
    {'grid_search': [1, 2]}
    """
    return {"grid_search": bounds.listed("grid_search", values, "values", to="search")}


def _quantized(call: str, lower: Any, upper: Any, q: Any, *, log: bool) -> Integer:
    low, high = bounds.whole_bounds(call, lower, upper, log=log)
    domain = Integer(low, high, log=log, q=bounds.whole_step(call, q))
    if domain.least > domain.greatest:
        raise SettingError(f"{call}({low}, {high}, q={q}): there is no multiple of q between the bounds")
    return domain


def _no_base(call: str, base: Any) -> None:
    if base is not _MISSING:
        no_effect(f"{call}(base={base!r})", "the values do not depend on the base of the logarithm")
