"""What a domain may be made of: numbers, bounds in order, steps that fit between them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, SupportsFloat, TypeVar

from tuner.error import SettingError, require

N = TypeVar("N", int, float)


def is_number(value: Any) -> bool:
    """True for a finite number that is no bool."""
    if isinstance(value, bool) or not isinstance(value, SupportsFloat):
        return False
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def number(call: str, name: str, value: Any) -> float:
    """`value` as a float. Raises SettingError, with the call and the argument's name."""
    require(is_number(value), f"{call}: {name}", value, "it is a finite number")
    return float(value)


def positive(call: str, name: str, value: Any) -> float:
    """`value` as a float above 0."""
    checked = number(call, name, value)
    require(checked > 0, f"{call}: {name}", value, "it is a number above 0")
    return checked


def whole(call: str, name: str, value: Any) -> int:
    """`value` as an int."""
    require(is_number(value) and float(value) == int(value), f"{call}: {name}", value, "it is a whole number")
    return int(value)


def bounds(call: str, lower: Any, upper: Any, *, log: bool = False) -> tuple[float, float]:
    """Both as floats, the lower one below the upper one, and above 0 on a log scale."""
    return _ordered(call, number(call, "lower", lower), number(call, "upper", upper), log)


def whole_bounds(call: str, lower: Any, upper: Any, *, log: bool = False) -> tuple[int, int]:
    """Both as ints, the lower one below the upper one, and above 0 on a log scale."""
    return _ordered(call, whole(call, "lower", lower), whole(call, "upper", upper), log)


def _ordered(call: str, low: N, high: N, log: bool) -> tuple[N, N]:
    if low >= high:
        raise SettingError(f"{call}({low!r}, {high!r}): lower is not below upper")
    if log and low <= 0:
        raise SettingError(
            f"{call}({low!r}, {high!r}): lower must be above 0 on a log scale (give the bounds, not their logarithms)"
        )
    return low, high


def step(call: str, low: float, high: float, q: Any) -> float:
    """The step of a grid that both bounds are on."""
    checked = positive(call, "q", q)
    for name, bound in (("lower", low), ("upper", high)):
        steps = bound / checked
        if math.isinf(steps) or not math.isclose(steps, round(steps), rel_tol=1e-9, abs_tol=1e-9):
            raise SettingError(f"{call}({low!r}, {high!r}, q={q!r}): {name} is not a multiple of q")
    return checked


def whole_step(call: str, q: Any) -> int:
    """The step of a grid of ints."""
    checked = whole(call, "q", q)
    require(checked >= 1, f"{call}: q", q, "it is 1, 2, ...")
    return checked


def listed(call: str, values: Iterable[Any], what: str, *, to: str) -> list[Any]:
    """Values to choose from, as a list with at least one of them."""
    try:
        made = list(values)
    except TypeError:
        raise SettingError(f"{call}({values!r}): the {what} are a sequence, e.g. {call}([1, 2, 3])") from None
    if not made:
        raise SettingError(f"{call}([]): there is nothing to {to}")
    return made
