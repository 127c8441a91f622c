"""Containers of a search space made again for a trial, with values in the place of their domains."""

from __future__ import annotations

import copy
import inspect
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import Any

from tuner.error import SettingError
from tuner.search.domains import Categorical, Domain, Function, same
from tuner.search.hidden_domains import pickles_domain
from tuner.search.space_tree import Fixed, Path, compile_node, is_grid, path_text

Rebuild = Callable[[Any], Any]
"""Function from a plain value, as configs have it, to the value that a trial gets."""


def contents_of(value: Any) -> dict[Any, Any] | None:
    """What a container holds, by key or name; None: its contents are not searched."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value) if hasattr(value, each.name)}
    if isinstance(value, (Namespace, SimpleNamespace)):
        return dict(vars(value))
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return dict(value._asdict())
    return {key: value[key] for key in value} if isinstance(value, Mapping) else None


def rebuilder(value: Any, plain: Mapping[Any, Any], inner: Rebuild | None, path: Path) -> Rebuild:
    """How a container is made again with other contents.

    Args:
        value: the container, with domains.
        plain: what it holds, laid open.
        inner: rebuilds what it holds.

    Raises SettingError for a container with which that fails.
    """
    example = _example(plain)
    contents = example if inner is None else inner(example)
    problem = "it keeps its first contents"
    for make in _ways(value, plain):
        try:
            made = make(contents)
            if type(made) is type(value) and _attributes(made) == _attributes(value) and not pickles_domain(made):
                return _explained(make, value, path)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
    raise SettingError(
        f"{path_text(path) or 'the space'}: {type(value).__name__} holds a domain and cannot be rebuilt with a value "
        f"in its place ({problem}); use a dict, a namespace or a dataclass instead"
    )


def _attributes(value: Any) -> set[str]:
    return set(vars(value)) if type(value).__dictoffset__ else set()


def _example(plain: Any) -> Any:
    """A value of an opened space."""
    if isinstance(plain, Categorical):
        return _example(plain.categories[0])
    if isinstance(plain, Domain):
        return 0 if isinstance(plain, Function) else plain.at(0.5)
    if is_grid(plain):
        return _example(plain["grid_search"][0])
    if type(plain) is dict:
        return {key: _example(item) for key, item in plain.items()}
    return type(plain)(map(_example, plain)) if type(plain) in (list, tuple) else plain


def _explained(make: Rebuild, value: Any, path: Path) -> Rebuild:
    def rebuild(contents: Any) -> Any:
        if not isinstance(contents, Mapping):
            return contents
        try:
            return make(contents)
        except Exception as error:
            raise SettingError(
                f"{path_text(path) or 'the config'}: {type(value).__name__} cannot be made of {dict(contents)!r:.500}: "
                f"{type(error).__name__}: {error}"
            ) from error

    return rebuild


def _ways(value: Any, plain: Mapping[Any, Any]) -> Iterator[Rebuild]:
    """The ways in which a container may be made again, the most faithful first."""
    if is_dataclass(value) and hasattr(type(value), "__post_init__"):
        yield _constructed(value, plain)
    elif is_dataclass(value):
        yield lambda contents: _with_attributes(copy.copy(value), contents, object.__setattr__)
    elif isinstance(value, (Namespace, SimpleNamespace)):
        yield lambda contents: _with_attributes(copy.copy(value), contents, setattr)
    elif isinstance(value, tuple):
        yield lambda contents: type(value)._make(contents.values())  # type: ignore[attr-defined]
    else:
        yield lambda contents: _with_items(value, contents)
        yield lambda contents: type(value)(contents)  # also where copies share their attributes


def _with_attributes(made: Any, contents: Mapping[str, Any], put: Callable[[Any, str, Any], None]) -> Any:
    for name, item in contents.items():
        put(made, name, item)
    return made


def _with_items(value: Any, contents: Mapping[Any, Any]) -> Any:
    """A copy with its default factory and attributes; what it contains is not copied."""
    made = copy.deepcopy(value, {id(item): item for item in contents_of(value).values()})  # type: ignore[union-attr]
    for key in [key for key in made if key not in contents]:
        del made[key]
    for key, item in contents.items():
        made[key] = item
    if any(made[key] is not item and not same(made[key], item) for key, item in contents.items()):
        raise ValueError("it changes its contents")
    return made


def _constructed(value: Any, plain: Mapping[str, Any]) -> Rebuild:
    """How a dataclass with a `__post_init__` is made again: by its constructor, so that derived fields fit."""
    given = [each.name for each in fields(value) if each.init]
    now = contents_of(value) or {}
    try:
        derived = contents_of(type(value)(**{name: now[name] for name in given})) or {}
    except Exception:
        derived = now
    put = [
        each.name
        for each in fields(value)
        if not each.init
        and each.name in now
        and (not isinstance(compile_node(plain[each.name]), Fixed) or not same(now[each.name], derived.get(each.name)))
    ]

    def make(contents: Mapping[str, Any]) -> Any:
        if inspect.signature(value.__post_init__).parameters:
            raise ValueError("its __post_init__ takes arguments that no field holds")
        made = type(value)(**{name: contents[name] for name in given})
        return _with_attributes(made, {name: contents[name] for name in put}, object.__setattr__)

    return make
