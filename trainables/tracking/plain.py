"""Configs and results as trackers take them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainables.result_history import flatten

_PLAIN = (str, int, float, bool, type(None))


def plain_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config that is JSON: what is none is told by its text; callbacks are left out."""
    return {str(key): _plain(value) for key, value in config.items() if key != "callbacks"}


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # numpy's scalars, and arrays
        value = value.tolist()
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(each) for each in value]
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return str(value)
    return value


def numbers(result: Mapping[str, Any], *, left_out: frozenset[str] = frozenset()) -> dict[str, float]:
    """The numbers of a result, flat; of `left_out` the keys, and those below them, are left out."""
    found = {}
    for key, value in flatten(result).items():
        if hasattr(value, "item") and getattr(value, "size", 0) == 1:
            value = value.item()
        if isinstance(value, (int, float)) and not within(key, left_out):
            found[key] = value
    return found


def within(key: str, names: frozenset[str]) -> bool:
    """Whether a flat key is one of these, or below one of them."""
    return key in names or ("/" in key and any(key.startswith(f"{name}/") for name in names))
