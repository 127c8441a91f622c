"""Domains inside objects of a search space, where none is searched: found as an object travels to a trial."""

from __future__ import annotations

from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import cloudpickle

from tuner.error import SettingError
from tuner.search.domains import Categorical, Domain
from tuner.search.space_tree import Path, is_grid, path_text

SCALARS = (str, int, float, bool, type(None), bytes, complex)
_BY_NAME = (type, FunctionType, BuiltinFunctionType, ModuleType)
"""Objects of these types are no containers."""
_SEARCHED_IN = (
    "domains are searched in dicts, lists, tuples, named tuples, dataclasses, argparse.Namespace, "
    "types.SimpleNamespace and other mappings"
)


def refuse_hidden(value: Any, path: Path = ()) -> None:
    """Raise SettingError for a part of a space, in dicts, lists and tuples, that holds a domain and is not searched."""
    if isinstance(value, Categorical):
        for each in value.categories:
            refuse_hidden(each, path)
    elif isinstance(value, dict) or type(value) in (list, tuple):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            refuse_hidden(item, (*path, key))
    elif not isinstance(value, Domain) and holds_domain(value):
        raise SettingError(
            f"{path_text(path) or 'the space'}: {type(value).__name__} holds a domain, and a trial would get the "
            f"domain itself instead of a value; {_SEARCHED_IN}"
        )


def holds_domain(value: Any) -> bool:
    """True if a trial that gets this object finds a domain in it, at any depth. False for what cannot be pickled."""
    if isinstance(value, (*SCALARS, *_BY_NAME)):
        return False
    try:
        return pickles_domain(value)
    except Exception:
        return False


def pickles_domain(value: Any) -> bool:
    try:
        _DomainFinder(_Nowhere(), protocol=5, buffer_callback=lambda buffer: False).dump(value)
    except _Found:
        return True
    return False


class _Found(Exception):
    """A domain is in what is pickled."""


class _Nowhere:
    """File that keeps nothing."""

    def write(self, data: bytes) -> int:
        return len(data)


class _DomainFinder(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles as an object travels to a trial, and raises `_Found` at a domain."""

    def persistent_id(self, value: Any) -> str | None:
        if isinstance(value, Domain) or (type(value) is dict and is_grid(value)):
            raise _Found
        return "skipped" if isinstance(value, _BY_NAME) or _is_numbers(value) else None


def _is_numbers(value: Any) -> bool:
    """True for arrays and tensors, but those of objects."""
    library = type(value).__module__.partition(".")[0]
    return library in ("numpy", "torch") and str(getattr(value, "dtype", "object")) != "object"
