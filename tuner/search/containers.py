"""Search spaces in namespaces, dataclasses and mappings of any type: laid open for the search, rebuilt for the trial.

Searchers, the journal and all files know dicts, lists and tuples only. The trial gets the types that the user wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tuner.error import SettingError
from tuner.search.domains import Categorical, Domain
from tuner.search.fitting import fits
from tuner.search.hidden_domains import SCALARS, refuse_hidden
from tuner.search.rebuilding import Rebuild, contents_of, rebuilder
from tuner.search.space_tree import Path, compile_node, is_grid, path_text


class OpenSpace(dict[str, Any]):
    """Search space whose containers are laid open as dicts.

    Args:
        plain: the space in dicts, lists and tuples.
        given: the space as the user wrote it. It is what gets pickled.
        rebuild: makes the config of a trial of a plain config.
    """

    def __init__(self, plain: Mapping[str, Any], given: Mapping[str, Any], rebuild: Rebuild) -> None:
        super().__init__(plain)
        self.given, self.rebuild = given, rebuild

    def __reduce__(self) -> tuple[Any, ...]:
        return lay_open, (self.given,)


def lay_open(
    space: Mapping[str, Any], check: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
) -> Mapping[str, Any]:
    """Return a search space in dicts, lists and tuples: the same object where it has no other containers to search.

    Args:
        space: the space as the user wrote it, or one that is laid open already.
        check: is called with the former, and returns what is searched.

    Raises SettingError for a domain in a container that is not searched or cannot be rebuilt.
    """
    if isinstance(space, OpenSpace):
        if check is None:
            return space
        space = space.given
    space = space if check is None else check(space)
    plain = dict(space)
    opened = _items(plain, plain.values(), (), (id(space),))
    rebuild = opened.rebuild
    if type(space) is not dict:
        rebuild = _chained(rebuild, rebuilder(space, opened.plain, opened.rebuild, ()))
    return space if rebuild is None else OpenSpace(opened.plain, space, rebuild)


def close(space: Any, config: Mapping[str, Any]) -> Any:
    """Return the config that a trial gets: with the containers of the space that it was made from."""
    return space.rebuild(config) if isinstance(space, OpenSpace) else config


class _Opened(NamedTuple):
    plain: Any
    rebuild: Rebuild | None
    """None: a trial gets the plain value."""
    searched: bool
    """True if a domain is inside."""


def _open(value: Any, path: Path, within: tuple[int, ...]) -> _Opened:
    if isinstance(value, SCALARS):
        return _Opened(value, None, False)
    value = _of_omegaconf(value)
    if isinstance(value, Categorical):
        opened = [_open(each, path, within) for each in value.categories]
        rebuild = _of_branches(value.categories, opened, path)
        plain = value if rebuild is None else replace(value, categories=tuple(each.plain for each in opened))
        return _Opened(plain, rebuild, True)
    if isinstance(value, Domain):
        return _Opened(value, None, True)
    if id(value) in within:
        raise SettingError(f"{path_text(path)}: {type(value).__name__} contains itself; a search space has an end")
    within = (*within, id(value))
    if is_grid(value):
        return _open_grid(value, path, within)
    if type(value) in (dict, list, tuple):
        return _items(value, value.values() if isinstance(value, dict) else value, path, within)
    names = contents_of(value)
    if names is None:
        refuse_hidden(value, path)
        return _Opened(value, None, False)
    inside = _items(names, names.values(), path, within)
    if not inside.searched:
        return _Opened(value, None, False)
    return _Opened(inside.plain, _chained(inside.rebuild, rebuilder(value, inside.plain, inside.rebuild, path)), True)


def _of_omegaconf(value: Any) -> Any:
    """The domain that OmegaConf has made a config of its fields, as it does with dataclasses."""
    if not type(value).__module__.startswith("omegaconf."):
        return value
    from omegaconf import OmegaConf

    kind = OmegaConf.get_type(value)
    return OmegaConf.to_object(value) if kind is not None and issubclass(kind, Domain) else value


def _open_grid(value: Mapping[str, Any], path: Path, within: tuple[int, ...]) -> _Opened:
    values = value["grid_search"]
    if isinstance(values, str) or not isinstance(values, Sequence):
        return _Opened(value, None, True)  # refused when it is compiled
    opened = [_open(each, path, within) for each in values]
    rebuild = _of_branches(values, opened, path)
    plain = value if rebuild is None else {"grid_search": [each.plain for each in opened]}
    return _Opened(plain, rebuild, True)


def _items(value: Any, items: Any, path: Path, within: tuple[int, ...]) -> _Opened:
    """Open what a dict, list or tuple contains."""
    if all(type(item) in SCALARS for item in items):
        return _Opened(value, None, False)
    pairs = dict(value.items() if isinstance(value, dict) else enumerate(value))
    opened = {key: _open(item, (*path, key), within) for key, item in pairs.items()}
    searched = any(each.searched for each in opened.values())
    if all(each.plain is pairs[key] and each.rebuild is None for key, each in opened.items()):
        return _Opened(value, None, searched)
    plain = {key: each.plain for key, each in opened.items()}
    inner = {key: each.rebuild for key, each in opened.items() if each.rebuild is not None}
    made = plain if isinstance(value, dict) else type(value)(plain.values())
    return _Opened(made, _of_items(inner) if inner else None, searched)


# --- rebuilding -------------------------------------------------------------------------------------------------


def _chained(first: Rebuild | None, then: Rebuild) -> Rebuild:
    return then if first is None else lambda plain: then(first(plain))


def _of_items(inner: Mapping[Any, Rebuild]) -> Rebuild:
    def rebuild(plain: Any) -> Any:
        if isinstance(plain, Mapping):
            return {key: inner[key](item) if key in inner else item for key, item in plain.items()}
        if isinstance(plain, (list, tuple)):
            return type(plain)(inner[key](item) if key in inner else item for key, item in enumerate(plain))
        return plain

    return rebuild


def _of_branches(values: Sequence[Any], opened: Sequence[_Opened], path: Path) -> Rebuild | None:
    """How a value of a choice or grid is rebuilt: as the first of its values that it can have come from."""
    if all(each.rebuild is None for each in opened):
        return None
    nodes = [compile_node(each.plain, path) for each in opened]
    _check_told_apart(values, opened, path)

    def rebuild(plain: Any) -> Any:
        likely = [each for each in opened if _same_names(each.plain, plain)]  # a scheduler may have left the domains
        found = [each for each, node in zip(opened, nodes, strict=True) if fits(node, plain)] or likely
        return found[0].rebuild(plain) if found and found[0].rebuild is not None else plain

    return rebuild


def _check_told_apart(values: Sequence[Any], opened: Sequence[_Opened], path: Path) -> None:
    for index, one in enumerate(opened):
        for two in range(index):
            if type(values[index]) is not type(values[two]) and _same_names(one.plain, opened[two].plain):
                kinds = f"{type(values[two]).__name__} and {type(values[index]).__name__}"
                raise SettingError(
                    f"{path_text(path)}: two of the values have the same keys and different types, {kinds}, so that a "
                    "config does not say which one it has; use one type, or give one of them another key"
                )


def _same_names(one: Any, two: Any) -> bool:
    return isinstance(one, Mapping) and isinstance(two, Mapping) and one.keys() == two.keys()
