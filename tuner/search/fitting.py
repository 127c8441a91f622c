"""Configs beside search spaces: whether one fits, and which values it has at the searched places."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tuner.error import SettingError
from tuner.search.domains import Domain, describe
from tuner.search.searcher import contains
from tuner.search.space_tree import Branches, Computed, Fixed, Items, Leaf, Node, flat


def nested(given: Mapping[str, Any]) -> dict[str, Any]:
    """{"a/b": 1} as {"a": {"b": 1}}: the names of libraries are flat."""
    made: dict[str, Any] = {}
    for name, value in given.items():
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


def misfit(node: Node, value: Any, path: str = "", *, whole: bool = True, fixed: bool = False) -> str | None:
    """Where a config does not fit a space, and why; None: it does.

    Args:
        whole: False: it may lack names.
        fixed: True: its constants are those of the space, and a part of a config gives no value that is computed.
    """
    if isinstance(node, Leaf):
        domain = node.domain
        return None if domain.is_valid(value) else f"{path}={value!r} is not a value of {describe(domain)}"
    if isinstance(node, Branches):
        found = any(fits(inner, value) for inner in node.nodes)
        return None if found else f"{path}={value!r} is not a value of {describe(node.domain)}"
    if isinstance(node, Fixed) and fixed and not contains(node.value, value):
        return f"{path}={value!r} is not accepted: it is {describe(node.value)} in the search space, and not searched"
    if isinstance(node, Computed) and fixed and not whole:
        return f"{path}={value!r} is not accepted: it is computed by a sample_from"
    if not isinstance(node, Items):
        return None
    has_items = isinstance(value, Mapping if node.kind is dict else (list, tuple))
    if fixed and not has_items:
        keys = ", ".join(str(key) for key, _ in node.nodes)
        return f"{path}={value!r} is not accepted: it is a {node.kind.__name__} in the search space, with {keys}"
    for key, inner in node.nodes:
        place = f"{path}/{key}" if path else str(key)
        if isinstance(inner, (Fixed, Computed)) and not fixed:
            continue
        if node.kind is dict:
            there = has_items and key in value
        else:
            there = has_items and key < len(value)
        if there and (problem := misfit(inner, value[key], place, whole=whole, fixed=fixed)):
            return problem
        if whole and not there and not isinstance(inner, (Fixed, Computed)):
            return f"it has no {place}"
    return None


def check_point(root: Node, point: Mapping[str, Any], what: str, *, whole: bool = False) -> None:
    """Raise SettingError, with key and value, for a config of a user's that a space cannot have."""
    check_names(root, point, "")
    if problem := misfit(root, point, whole=whole, fixed=True):
        raise SettingError(f"{what}: {problem}")


def check_own_names(names: Collection[str], point: Mapping[str, Any], what: str) -> None:
    """Raise SettingError for a name in a point that a space in a library's own form has not."""
    for name, value in flat(point).items():
        if not any(name == own or name.startswith(f"{own}/") for own in names):
            raise SettingError(f"{what}: {name}={value!r} is not in the search space, which has: {', '.join(names)}")


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
