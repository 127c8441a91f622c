"""The explore step of PBT: resamples or perturbs the values of a config."""

from __future__ import annotations

import copy
import logging
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from trainables.quick_dataclass import dataclass
from tuner.error import SettingError
from tuner.search.domains import Categorical, Domain, Float, Function, Integer, is_number, same
from tuner.search.resolve import HashDraw, Space, seeded

log = logging.getLogger(__name__)

_ACCEPTED = "a list, a dict of these, a domain (tune.uniform, ...) or a function without arguments"


@dataclass(frozen=True)
class Explorer:
    """Resamples or perturbs what `mutations` names; all else of a config stays.

    A value that a domain is given for stays within that domain. A function has no bounds that could be known: one log
    line names each value that is perturbed without any.

    Every draw is a function of (key, name of the value), whatever else is drawn.
    """

    mutations: Mapping[str, Any]
    """Name -> where its values come from: a list, a domain, a function, or a dict of these."""
    resample_probability: float
    factors: tuple[float, ...]
    _unbounded: set[str] = field(default_factory=set, repr=False, compare=False)
    """Names of the values that were logged as perturbed without bounds."""

    def explored(self, config: Mapping[str, Any], key: str) -> dict[str, Any]:
        """A changed copy of `config`."""
        return self._explored(copy.deepcopy(dict(config)), self.mutations, key, "")

    def _explored(self, config: dict[str, Any], mutations: Mapping[str, Any], key: str, path: str) -> dict[str, Any]:
        for name, source in mutations.items():
            place = f"{path}{name}"
            if isinstance(source, Mapping):
                inner = config.get(name)
                inner = dict(inner) if isinstance(inner, Mapping) else {}
                config[name] = self._explored(inner, source, key, f"{place}/")
            elif name not in config or chance(key, f"{place} resample") < self.resample_probability:
                config[name] = resampled(source, key, place, like=config.get(name))
            else:
                config[name] = self._moved(config[name], source, key, place)
        return config

    def _moved(self, value: Any, source: Any, key: str, place: str) -> Any:
        where = chance(key, f"{place} move")
        if isinstance(source, Sequence):
            return _neighbour(value, source, where, lambda: resampled(source, key, place))
        if isinstance(value, bool):
            return value  # no factor means anything; only resampling changes it
        if isinstance(source, Categorical):
            return _neighbour(value, source.categories, where, lambda: resampled(source, key, place))
        if not is_number(value):
            return resampled(source, key, place)
        factor = self.factors[int(where * len(self.factors))]
        if not isinstance(source, Float | Integer):
            self._log_unbounded(place, value, factor)
        return within(source, value * factor, value)

    def _log_unbounded(self, place: str, value: Any, factor: float) -> None:
        if place not in self._unbounded:
            self._unbounded.add(place)
            log.warning(
                "hyperparam_mutations[%r] is a function, which has no bounds: %r is multiplied by %s; a domain such as "
                "tune.uniform(0, 1) keeps the values within its bounds",
                place,
                value,
                factor,
            )


def chance(key: str, name: str) -> float:
    """A number of [0, 1) that is a function of (key, name)."""
    return float(HashDraw(key).seed(name) / 2**53)


def like_old(new: Any, old: Any) -> Any:
    """`new` of the kind that `old` is: what began as an int stays one, rounded."""
    if isinstance(old, bool):
        return bool(new)
    return round(new) if isinstance(old, numbers.Integral) and is_number(new) else new


def within(source: Any, new: Any, old: Any) -> Any:
    """`new` of the kind that `old` is, and within the domain `source` if that has bounds or a grid."""
    if isinstance(source, Integer):
        return source.quantize(min(max(new, source.least), source.greatest))
    if not isinstance(source, Float):
        return like_old(new, old)
    meant = source.quantize(min(max(new, source.lower), source.upper))
    kept = clipped(meant, source.lower, source.upper, like=old)
    return kept if source.quantize(kept) == kept else meant  # a whole number may be none of the grid


def clipped(new: Any, least: float, greatest: float, *, like: Any) -> Any:
    """`new` of the kind that `like` is, within two bounds; no whole number where none lies between them."""
    kept = like_old(new, like)
    if least <= kept <= greatest:
        return kept
    bound = min(max(new, least), greatest)
    whole = math.floor(bound) if kept > bound else math.ceil(bound)
    return whole if isinstance(like, numbers.Integral) and least <= whole <= greatest else bound


def resampled(source: Any, key: str, place: str, *, like: Any = None) -> Any:
    """A new value, whatever the old one was."""
    if isinstance(source, Mapping):
        return completed({}, source, key, f"{place}/")
    if isinstance(source, Domain):
        drawn = Space({"value": source}).resolve(HashDraw(f"{key} {place}"))["value"]
        return within(source, drawn, like) if isinstance(source, Float | Integer) and is_number(like) else drawn
    if isinstance(source, Sequence):
        return source[int(chance(key, place) * len(source))]
    with seeded(HashDraw(key).seed(place)):
        return like_old(source(), like)


def called(function: Callable[[dict[str, Any]], Any], config: dict[str, Any], key: str) -> dict[str, Any]:
    """The config that a custom_explore_fn makes of `config`, its random numbers being a function of the key.

    Raises:
        SettingError: it returned no dict.
    """
    with seeded(HashDraw(key).seed("custom_explore_fn")):
        made = function(config)
    if not isinstance(made, dict):
        raise SettingError(f"custom_explore_fn returned {made!r}, which is not accepted; it returns the whole config")
    return made


def check_mutations(mutations: Any, name: str = "hyperparam_mutations") -> None:
    """Raise SettingError, naming the value, for what values cannot come from."""
    if not isinstance(mutations, Mapping):
        raise SettingError(f"{name}={mutations!r} is not accepted; it is a dict: name -> {_ACCEPTED}")
    for key, source in mutations.items():
        place = f"{name}[{key!r}]"
        if isinstance(source, Mapping) and list(source) == ["grid_search"]:
            raise SettingError(f"{place} is a grid_search, which is for trials to begin with; give its list alone")
        if isinstance(source, Mapping):
            check_mutations(source, place)
        elif isinstance(source, Function):
            raise SettingError(f"{place}={source} is not accepted: it depends on a config; accepted are {_ACCEPTED}")
        elif isinstance(source, list | tuple):
            if not source:
                raise SettingError(f"{place}={source!r} is empty: there is nothing to choose from")
        elif not isinstance(source, Domain) and not callable(source):
            raise SettingError(f"{place}={source!r} is not accepted; accepted are {_ACCEPTED}")


def completed(config: dict[str, Any], mutations: Mapping[str, Any], key: str, path: str = "") -> dict[str, Any]:
    """`config`, and a value of each mutation that it lacks."""
    missing: dict[str, Any] = {}
    for name, source in mutations.items():
        place = f"{path}{name}"
        if name not in config:
            missing[name] = resampled(source, key, place)
        elif isinstance(source, Mapping) and isinstance(config[name], dict):
            missing[name] = completed(config[name], source, key, f"{place}/")
    return {**config, **missing}


def _neighbour(value: Any, values: Sequence[Any], where: float, otherwise: Callable[[], Any]) -> Any:
    """The value on one side of `value` or the other; at an end it may stay. One that is not among them is replaced."""
    for index, there in enumerate(values):
        if same(value, there):
            return values[max(0, index - 1) if where < 0.5 else min(len(values) - 1, index + 1)]
    return otherwise()
