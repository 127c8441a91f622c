"""Checks of the arguments of searchers, schedulers and stoppers. Each raises SettingError, which names the value."""

from __future__ import annotations

import datetime
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from trainables.metrics import as_score
from tuner.error import SettingError, refused, require


def is_whole(value: object) -> bool:
    """True for an int that is no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def whole_number(name: str, value: Any, *, least: int) -> int:
    """`value`, if it is a whole number from `least` on."""
    require(is_whole(value) and value >= least, name, value, f"accepted are {least}, {least + 1}, ...")
    return int(value)


def seed_or_none(seed: Any) -> None:
    """Refuse what is neither a whole number nor None: the experiment's."""
    require(seed is None or is_whole(seed), "seed", seed, "accepted are a whole number and None: the experiment's")


def check_number(name: str, value: Any, fits: Callable[[float], bool], accepted: str) -> None:
    """Refuse what is no number, or one that does not fit."""
    require(as_score(value) is not None and fits(value), name, value, f"accepted: {accepted}")


def number(name: str, value: Any, *, above: float | None = None) -> float:
    """`value` as a float that is not NaN, above a bound where there is one."""
    found = as_score(value)
    if found is None or math.isnan(found) or (above is not None and not found > above):
        raise refused(name, value, "it is a number" + ("" if above is None else f" above {above:g}"))
    return found


def seconds(name: str, value: Any) -> float:
    """A time span in seconds, of a number of them or a `datetime.timedelta`."""
    found = value.total_seconds() if isinstance(value, datetime.timedelta) else as_score(value)
    if found is None or not found >= 0:
        raise refused(name, value, "it is a number of seconds or a datetime.timedelta")
    return found


def metric_name(metric: Any, name: str = "metric") -> str:
    """`metric`, if it is the name of one."""
    require(isinstance(metric, str) and metric, name, metric, "it is the name of a metric")
    return str(metric)


def check_mode(mode: Any, name: str = "mode") -> None:
    """Refuse everything but "min" and "max"."""
    require(mode in ("min", "max"), name, mode, "accepted are 'min' and 'max'")


def class_hint(value: object, kind: type) -> str:
    """What to add to an error about a class that stands where an object of it is meant."""
    return "; create an instance of it" if isinstance(value, type) and issubclass(value, kind) else ""


def fitting(method: Callable[..., Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Those of some named arguments that a method takes: it may have been written before there were others."""
    parameters = inspect.signature(method).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return dict(named)
    return {name: value for name, value in named.items() if name in parameters}


def require_goal(label: str, metric: object, mode: object) -> None:
    """Refuse to go on without a metric and a mode."""
    for name, value in (("metric", metric), ("mode", mode)):
        if value is None:
            raise SettingError(f"{label} needs a {name}: give {name}= to it or to the run")
