"""Configs that a user gives by hand, in part or whole: put into a search space, or into another trial's config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainables.validation import nearest_name
from tuner.error import SettingError
from tuner.search.domains import Categorical, Domain, describe, same
from tuner.search.fitting import fits, misfit
from tuner.search.resolve import HashDraw, Space
from tuner.search.space_tree import GridValues, compile_node, is_grid

LISTED = 10
"""So many keys are listed where one is not known."""


def completed(space: Mapping[str, Any], given: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A whole config: what is given, the constants of the space, and what is drawn of the rest.

    Args:
        given: key, or path as "model/lr", -> plain value.
        key: what is drawn is a pure function of it.

    Raises:
        SettingError: a key that the space has not, or a value that its domain has not.
    """
    made = Space(_filled(space, _located(space, given, "the search space"), ""))
    draw = HashDraw(key)
    return made.resolve(draw, draw.seed("grid") % made.grid_size)


def checked_value(space: Mapping[str, Any], key: str, value: Any) -> list[str]:
    """The way to a searched place of a space, whose domain has that value.

    Args:
        key: a key, or path as "model/lr", of a domain; no constant.

    Raises SettingError: the space has no such key, it is not searched, or its domain has not that value.
    """
    located, domain, way = _located(space, {key: value}, "the search space"), space, []
    while _has_names(domain):
        if len(located) != 1:
            raise SettingError(f"{key} has {len(located)} values here, and one is given at a time")
        ((head, located),) = located.items()
        way.append(head)
        domain = domain[head]
    if not isinstance(domain, Domain) and not is_grid(domain):
        raise SettingError(f"{key} is {domain!r:.200} in the search space, and not searched")
    _fitting(domain, located, key)
    return way


def edited(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A config with other values at some keys, or paths as "model/lr", all of which it has. Raises SettingError."""
    return _merged(config, _located(config, changes, "the config"))


def _merged(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(config)
    for key, value in changes.items():
        inside = isinstance(value, Mapping) and isinstance(made[key], Mapping)
        made[key] = _merged(made[key], value) if inside else value
    return made


def _located(names: Mapping[str, Any], given: Mapping[str, Any], what: str, path: str = "") -> dict[str, Any]:
    """The same with each path taken apart as `names` has it. Raises SettingError for one that it has not."""
    made: dict[str, Any] = {}
    for key, value in given.items():
        head, rest = _split(names, key)
        if head is None:
            raise SettingError(_unknown(f"{path}{key}", names, path, what))
        inner = names[head]
        if rest:
            value = {rest: value}
        if _has_names(inner) and inner:
            if not isinstance(value, Mapping):
                raise SettingError(
                    f"{path}{head}={value!r:.200} is not accepted: there are {', '.join(_paths(inner))} in it"
                )
            value = _located(inner, value, what, f"{path}{head}/")
            if isinstance(before := made.get(head), dict):
                value = _joined(before, value)
        made[head] = value
    return made


def _joined(one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
    made = dict(one)
    for key, value in two.items():
        both = isinstance(value, dict) and isinstance(made.get(key), dict)
        made[key] = _joined(made[key], value) if both else value
    return made


def _split(names: Mapping[str, Any], key: str) -> tuple[str | None, str]:
    """The name that a path begins with, and the path from there; None: there is none."""
    if key in names:
        return key, ""
    parts = key.split("/")
    for count in range(len(parts) - 1, 0, -1):
        head = "/".join(parts[:count])
        if head in names and _has_names(names[head]):
            return head, "/".join(parts[count:])
    return None, ""


def _has_names(value: Any) -> bool:
    return isinstance(value, Mapping) and not is_grid(value)


def _paths(names: Mapping[str, Any]) -> Iterator[str]:
    """What may be given in it: a grid is one of these."""
    for name, value in names.items():
        if _has_names(value) and value:
            yield from (f"{name}/{path}" for path in _paths(value))
        else:
            yield name


def _unknown(key: str, names: Mapping[str, Any], path: str, what: str) -> str:
    there = [f"{path}{name}" for name in _paths(names)]
    near = nearest_name(key, there)
    listed = ", ".join(there[:LISTED]) + (f" and {len(there) - LISTED} more" if len(there) > LISTED else "")
    hint = f"did you mean {near!r}? It has" if near else "it has"
    return f"{key!r:.200} is not in {what}; {hint} {listed or 'nothing'}"


def _filled(space: Mapping[str, Any], point: Mapping[str, Any], path: str) -> dict[str, Any]:
    """A space with given values in the place of its domains."""
    made = dict(space)
    for key, value in point.items():
        place, domain = f"{path}{key}", space[key]
        if _has_names(domain) and isinstance(value, Mapping):
            made[key] = _filled(domain, value, f"{place}/")
        else:
            made[key] = _Given(_fitting(domain, value, place))
    return made


class _Given(Domain):
    """A value that is no part of a space any more, whatever it looks like."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def at(self, u: float) -> Any:
        return self.value

    def is_valid(self, value: Any) -> bool:
        return same(value, self.value)


def _fitting(domain: Any, value: Any, place: str) -> Any:
    """The value as the domain has it: of JSON, a tuple is a list. Raises SettingError where it has none such."""
    categories = domain.categories if isinstance(domain, Categorical) else ()
    if is_grid(domain):
        categories = domain["grid_search"]
    for category in categories:
        if same(_plain(category), value):
            return category
    node = compile_node(domain)
    if isinstance(node, GridValues):
        found = any(fits(inner, value) for inner in node.nodes)
        problem = None if found else f"{place}={value!r} is not a value of grid_search({describe(list(categories))})"
    else:
        problem = misfit(node, value, place)
    if problem is not None:
        raise SettingError(problem)
    return domain.cast(value) if isinstance(domain, Domain) else value


def _plain(value: Any) -> Any:
    """As JSON gives it back."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
