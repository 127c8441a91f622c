"""Values as plain JSON for other tools: lists, numbers and texts, without the tags that keep the exact value."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from trainables.tagged_kinds import DEPTH


def plain_text(value: Any, *, indent: int | None = None) -> bytes:
    """A value as JSON text. NaN and the infinities are written as Python's own `json` writes them.

    >>> plain_text({"betas": (0.9, 0.99), 3: {"b", "a"}, "bad": float("nan")})
    b'{"betas":[0.9,0.99],"3":["a","b"],"bad":NaN}'
    """
    separators = (",", ":") if indent is None else None
    return json.dumps(plain(value), ensure_ascii=False, indent=indent, separators=separators).encode()


def plain(value: Any, depth: int = 0) -> Any:
    """A value as what JSON has: arrays, tuples and sets as lists, numpy numbers as numbers, all else as text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(str.__str__(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if depth > DEPTH:
        return f"nested deeper than {DEPTH} levels"
    if isinstance(value, Mapping):
        return _object(value, depth + 1)
    if isinstance(value, list | tuple):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, set | frozenset):
        return _sorted(plain(item, depth + 1) for item in value)
    if type(value).__module__ == "numpy" and hasattr(value, "dtype"):
        return _of_numpy(value, depth)
    return _text(value.isoformat() if hasattr(value, "isoformat") else str(value))


def _object(value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    made = dict[str, Any]()
    for key, item in value.items():
        name = _text(key if isinstance(key, str) else str(key))
        if name in made:  # 1 and "1" are two keys
            name = f"{name} ({type(key).__name__})"
        made[name] = plain(item, depth)
    return made


def _sorted(items: Iterable[Any]) -> list[Any]:
    found = list(items)
    try:
        return sorted(found)
    except TypeError:
        return sorted(found, key=json.dumps)


def _of_numpy(value: Any, depth: int) -> Any:
    if value.dtype.kind in "mM":  # as integers they would lose their unit
        value = value.astype(str)
    items = value.tolist()
    return _text(str(items)) if type(items) is type(value) else plain(items, depth + 1)


def _text(text: str) -> str:
    """A text that can be encoded: a lone surrogate is written as its escape."""
    return text.encode("utf-8", "backslashreplace").decode()
