"""Configs beside search spaces: whether one fits, and which values it has at the searched places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuner.error import SettingError
from tuner.search.domains import Domain, describe
from tuner.search.searcher import contains
from tuner.search.space_tree import Branches, Computed, Fixed, Items, Leaf, Node


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """{"a/b": 1} as {"a": {"b": 1}}: the names of libraries are flat."""
    made: dict[str, Any] = {}
    for name, value in flat.items():
        *way, last = name.split("/") if isinstance(name, str) else [name]
        node = made
        for key in way:
            node = node.setdefault(key, {})
        node[last] = value
    return made


def value_at(config: Any, name: str, default: Any = None) -> Any:
    """What a config has at "a/b", nested or flat."""
    if isinstance(config, Mapping) and name in config:
        return config[name]
    key, slash, rest = name.partition("/")
    there = slash and isinstance(config, Mapping) and key in config
    return value_at(config[key], rest, default) if there else default


def searched(node: Node, value: Any, name: str = "") -> Iterator[tuple[str, Domain, Any]]:
    """(name, domain, value) of the searched places that a config has, in whole or in part; of a choice the number."""
    if isinstance(node, Leaf):
        yield name, node.domain, value
    elif isinstance(node, Branches):
        for index, inner in enumerate(node.nodes):
            if fits(inner, value):
                yield name, node.domain, index
                yield from searched(inner, value, f"{name}[{index}]")
                return
    elif isinstance(node, Items):
        prefix = f"{name}/" if name else ""
        for key, inner in node.nodes:
            if key in value if node.kind is dict else key < len(value):
                yield from searched(inner, value[key], f"{prefix}{key}")


def fits(node: Node, value: Any) -> bool:
    """True if `value` can have come from this subtree."""
    if isinstance(node, Fixed):
        return contains(value, node.value) and contains(node.value, value)
    if isinstance(node, Leaf):
        return node.domain.is_valid(value)
    if isinstance(node, Branches):
        return any(fits(inner, value) for inner in node.nodes)
    if isinstance(node, Items):
        if node.kind is dict:
            same_kind = isinstance(value, Mapping) and set(value) == {key for key, _ in node.nodes}
        else:
            same_kind = isinstance(value, (list, tuple)) and len(value) == len(node.nodes)
        return same_kind and all(fits(inner, value[key]) for key, inner in node.nodes)
    return isinstance(node, Computed)


def misfit(node: Node, value: Any, path: str = "", *, whole: bool = True) -> str | None:
    """Where a config does not fit a space, and why; None: it does. Constants and functions may be others.

    Args:
        whole: False: it may lack names.
    """
    if isinstance(node, Leaf):
        domain = node.domain
        return None if domain.is_valid(value) else f"{path}={value!r} is not a value of {describe(domain)}"
    if isinstance(node, Branches):
        found = any(fits(inner, value) for inner in node.nodes)
        return None if found else f"{path}={value!r} is not a value of {describe(node.domain)}"
    if not isinstance(node, Items):
        return None
    for key, inner in node.nodes:
        place = f"{path}/{key}" if path else str(key)
        if isinstance(inner, (Fixed, Computed)):
            continue
        if node.kind is dict:
            there = isinstance(value, Mapping) and key in value
        else:
            there = isinstance(value, (list, tuple)) and key < len(value)
        if there and (problem := misfit(inner, value[key], place, whole=whole)):
            return problem
        if whole and not there:
            return f"it has no {place}"
    return None


def check_names(node: Node, point: Mapping[str, Any], path: str) -> None:
    """Raise SettingError for a name in a point that the space has not."""
    if not isinstance(node, Items) or node.kind is not dict or not isinstance(point, Mapping):
        return
    nodes = dict(node.nodes)
    for key, value in point.items():
        if key not in nodes:
            raise SettingError(
                f"points_to_evaluate: {path + str(key)!r} is not in the search space, which has: "
                f"{', '.join(map(str, nodes))}"
            )
        check_names(nodes[key], value, f"{path}{key}/")
