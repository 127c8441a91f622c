"""The tree of a search space: fixed parts, domains, choices, grids, at any depth of dicts, lists and tuples."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any

from trainables.quick_dataclass import dataclass
from tuner.error import SettingError
from tuner.search import sample
from tuner.search.domains import Categorical, Domain, Function

Path = tuple[Any, ...]


@dataclass(frozen=True)
class Fixed:
    """A subtree without anything to search; it is passed on as it is, without a copy."""

    value: Any


@dataclass(frozen=True)
class Leaf:
    """A domain that is neither a choice nor a function."""

    domain: Domain


@dataclass(frozen=True)
class Computed:
    """A `sample_from`."""

    domain: Function


@dataclass(frozen=True)
class Branches:
    """A choice; each category is a subtree."""

    domain: Categorical
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class GridValues:
    """A grid; each value is a subtree."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Items:
    """A dict, list or tuple with something to search in it."""

    kind: type
    nodes: tuple[tuple[Any, Node], ...]


Node = Fixed | Leaf | Computed | Branches | GridValues | Items


def is_grid(value: Any) -> bool:
    """True for what `grid_search` makes."""
    return isinstance(value, Mapping) and len(value) == 1 and "grid_search" in value


def compile_node(value: Any, path: Path = (), *, branch: str | None = None) -> Node:
    """The tree of a search space.

    Raises SettingError for a grid in a branch of a choice, and for what makes a domain where it was not called; any
    other function is a value.
    """
    if isinstance(value, Categorical) and value.is_grid():
        value = {"grid_search": list(value.categories)}
    if isinstance(value, Categorical):
        inside = path_text(path) or "the space"
        nodes = tuple(compile_node(category, path, branch=branch or inside) for category in value.categories)
        return Branches(value, nodes)
    if isinstance(value, Function):
        return Computed(value)
    if isinstance(value, Domain):
        return Leaf(value)
    if is_grid(value):
        if branch is not None:
            raise SettingError(
                f"{path_text(path)}: a grid_search cannot be in a branch of a choice or sample_from (at {branch}): the "
                "number of trials would depend on the draw; make that choice a grid_search too, or this grid a choice"
            )
        values = value["grid_search"]
        if isinstance(values, (str, Mapping)) or not isinstance(values, Sequence) or not values:
            raise SettingError(
                f"{path_text(path)}: grid_search of {values!r} is not accepted; it is a list with at least one value"
            )
        return GridValues(tuple(compile_node(item, path) for item in values))
    if isinstance(value, dict):
        return _items(value, dict, value.items(), path, branch)
    if type(value) in (list, tuple):
        return _items(value, type(value), enumerate(value), path, branch)
    if _makes_domain(value):
        name = f"tune.{value.__name__}" if value in _CONSTRUCTORS else value.__qualname__
        wanted = [each.name for each in inspect.signature(value).parameters.values() if each.default is each.empty]
        raise SettingError(
            f"{path_text(path) or 'the space'}: {name} makes a domain, and is none before it is called: write "
            f"{name}({', '.join(wanted)})"
        )
    return Fixed(value)


_CONSTRUCTORS = frozenset(
    made for made in vars(sample).values() if inspect.isfunction(made) and made.__name__[0] != "_"
)


def _makes_domain(value: Any) -> bool:
    """Whether a value of a space is one of our own constructors of domains: nobody means the function itself."""
    if isinstance(value, type):
        return issubclass(value, Domain)
    if isinstance(value, MethodType):
        return isinstance(value.__self__, Domain)
    return isinstance(value, FunctionType) and value in _CONSTRUCTORS


def _items(value: Any, kind: type, pairs: Any, path: Path, branch: str | None) -> Node:
    nodes = tuple((key, compile_node(item, (*path, key), branch=branch)) for key, item in pairs)
    return Fixed(value) if all(isinstance(node, Fixed) for _, node in nodes) else Items(kind, nodes)


def path_text(path: Path) -> str:
    return "/".join(map(str, path))


def check_distinct(root: Node) -> None:
    """Raise SettingError when two places have one name: what is drawn goes by names, so both would get one value."""
    found: dict[str, str] = {}
    for name, place in _searched(root, "", "config"):
        if name in found:
            raise SettingError(
                f"{found[name]} and {place} are both called {name!r}, so they would always get the same value; "
                "rename one of the keys"
            )
        found[name] = place


def _searched(node: Node, name: str, place: str) -> Iterator[tuple[str, str]]:
    """(name, place in Python) of everything that is drawn or chosen, in every branch."""
    if isinstance(node, Items):
        for key, inner in node.nodes:
            yield from _searched(inner, f"{name}/{key}" if name else str(key), f"{place}[{key!r}]")
    elif not isinstance(node, Fixed):
        yield name, place
        for index, inner in enumerate(node.nodes if isinstance(node, (Branches, GridValues)) else ()):
            yield from _searched(inner, f"{name}[{index}]", f"{place} (branch {index})")


def leaves(node: Node, path: Path = ()) -> Iterator[tuple[Path, Node]]:
    """Every place of a tree with what is there; a choice or grid is one place."""
    if isinstance(node, Items):
        for key, inner in node.nodes:
            yield from leaves(inner, (*path, key))
    else:
        yield path, node


def walk(node: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    """(path, node) of everything in a tree but what lies inside grids, from the root on."""
    yield path, node
    inner = node.nodes if isinstance(node, Items) else enumerate(node.nodes) if isinstance(node, Branches) else ()
    for key, child in inner:
        yield from walk(child, f"{path}/{key}" if path else str(key))


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} as {"a/b": 1}; an empty dict is a value."""
    if not isinstance(value, Mapping) or not value:
        return {path: value}
    made: dict[str, Any] = {}
    for key, item in value.items():
        made.update(flat(item, f"{path}/{key}" if path else str(key)))
    return made
