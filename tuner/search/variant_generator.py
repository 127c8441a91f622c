"""Variants of a spec by hand: what `ray.tune.search.variant_generator` has. `tune.run` makes those of its `config`."""

from __future__ import annotations

import itertools
import random
import re
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from tuner.search import space_tree as tree
from tuner.search.choices import Categorical
from tuner.search.resolve import HashDraw, Space
from tuner.search.resolve import RecursiveDependencyError as RecursiveDependencyError
from tuner.search.sample import grid_search as grid_search
from tuner.search.variants import as_seed, preset_space

Path = tuple[Any, ...]
Variables = list[tuple[Path, Any]]


def generate_variants(
    unresolved_spec: Mapping[str, Any], constant_grid_search: bool = False, random_state: Any = None
) -> Iterator[tuple[dict[Path, Any], dict[str, Any]]]:
    """Every combination of the grids of a spec, with a value of each domain.

    Args:
        unresolved_spec: a dict with domains and grids, at any depth.
        constant_grid_search: one value of each domain for all combinations.
        random_state: a seed or a generator; None: numpy's global one, or Python's where numpy is not loaded.

    Yields:
        (path -> value of what was searched, the spec with these values).

    Example:
        >>> [spec for _, spec in generate_variants({"a": {"grid_search": [1, 2]}, "b": 3})]
        [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    space, seed = Space(unresolved_spec), as_seed(random_state)
    if seed is None:
        numpy = sys.modules.get("numpy")
        seed = int((random.random() if numpy is None else numpy.random.random()) * 2**53)
    searched = [path for path, node in tree.leaves(space.root) if not isinstance(node, tree.Fixed)]
    for index in range(space.grid_size):
        spec = space.resolve(HashDraw(f"{seed} {0 if constant_grid_search else index}"), index)
        yield {path: _at(spec, path) for path in searched}, spec


def get_preset_variants(
    spec: Mapping[str, Any], config: Mapping[str, Any], constant_grid_search: bool = False, random_state: Any = None
) -> Iterator[tuple[dict[Path, Any], dict[str, Any]]]:
    """The variants of a spec in whose "config" some values are given."""
    preset = {**spec, "config": preset_space(spec["config"], config)}
    given = {("config", *path): value for path, value in resolve_nested_dict(config).items()}
    for found, variant in generate_variants(preset, constant_grid_search, random_state):
        yield given | found, variant


def parse_spec_vars(spec: Mapping[str, Any]) -> tuple[Variables, Variables, Variables]:
    """(path, value) of what a spec has: constants, domains, and grids, each as a `choice` of its values."""
    fixed: Variables = []
    domains: Variables = []
    grids: Variables = []
    for path, node in tree.leaves(tree.compile_node(dict(spec))):
        if isinstance(node, tree.Fixed):
            inner = (
                resolve_nested_dict(node.value) if isinstance(node.value, Mapping) and node.value else {(): node.value}
            )
            fixed += [((*path, *way), value) for way, value in inner.items()]
        elif isinstance(node, tree.GridValues):
            grid = _at(spec, path)
            grids.append((path, Categorical(tuple(grid["grid_search"])).grid() if tree.is_grid(grid) else grid))
        else:
            domains.append((path, _at(spec, path)))
    return fixed, domains, sorted(grids, key=lambda item: str(item[0]))


def count_spec_samples(spec: Mapping[str, Any], num_samples: int = 1) -> int:
    """How many variants there are: all combinations of the grids, so many times."""
    return num_samples * Space(spec).grid_size


def resolve_nested_dict(nested_dict: Mapping[str, Any]) -> dict[Path, Any]:
    """Without nesting: {"a": {"b": 1}} is {("a", "b"): 1}."""
    flat: dict[Path, Any] = {}
    for key, value in nested_dict.items():
        inner = resolve_nested_dict(value) if isinstance(value, Mapping) else {(): value}
        flat |= {(key, *path): item for path, item in inner.items()}
    return flat


def flatten_resolved_vars(resolved_vars: Mapping[Path, Any]) -> dict[str, Any]:
    """Paths as text, from the config on: {("config", "a", "b"): 1} is {"a/b": 1}."""
    return {
        "/".join(map(str, path[1:] if path[0] == "config" else path)): value for path, value in resolved_vars.items()
    }


def format_vars(resolved_vars: Mapping[Path, Any]) -> str:
    """What a variant is told apart by: "layers=2,lr=0.1000".

    >>> format_vars({("config", "lr"): 0.1, ("config", "model", "layers"): 2})
    'lr=0.1000,layers=2'
    """
    shown = sorted((item for item in resolved_vars.items() if item[0] not in _LEFT_OUT), key=lambda item: str(item[0]))
    return ",".join(f"{_clean(path[-1])}={_clean(value)}" for path, value in shown)


_LEFT_OUT = {"run", "env", "resources_per_trial", ("run",), ("env",), ("resources_per_trial",)}


def _clean(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else re.sub(r"[^a-zA-Z0-9_-]+", "_", str(value)).strip("_")


def assign_value(spec: MutableMapping[str, Any] | Sequence[Any], path: Path, value: Any) -> None:
    """Put a value into a spec, in place; dicts on the way to it that are missing are made."""
    node: Any = spec
    for key in itertools.islice(path, len(path) - 1):
        node = node.setdefault(key, {}) if isinstance(node, MutableMapping) else node[key]
    node[path[-1]] = value


def _at(spec: Any, path: Path) -> Any:
    for key in path:
        spec = spec[key]
    return spec
