"""Where two states differ: nested values, arrays and tensors, by name."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DEPTH = 50
"""Levels of nesting that are looked into; what is deeper is compared as a whole."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that is not the same."""

    name: str
    """Where it lies: "optimizer.state.0.exp_avg"; "" for the whole."""
    text: str
    """What it was, and what it is."""
    tensor: bool = False
    """A tensor or an array, and no single value."""
    largest: float | None = None
    """Of numbers: by how much they differ at most."""


def differences(first: Any, second: Any, *, ignore: Sequence[str] = (), name: str = "") -> Iterator[Difference]:
    """All that differs between two values, in the order of the first.

    Args:
        first, second: dicts, lists, tuples, numbers, strings, tensors, arrays, and objects of these.
        ignore: names that do not count, as in a shell: "*_time". The whole name or its last part.
        name: of the two.

    NaN equals NaN. Objects of one class are compared by what they hold.
    """
    yield from _walk(first, second, name, ignore, 0)


def ignored(name: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns is for the whole name, or for its last part."""
    last = name.replace("/", ".").rpartition(".")[2]
    return any(fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(last, pattern) for pattern in patterns)


def _walk(a: Any, b: Any, name: str, ignore: Sequence[str], depth: int) -> Iterator[Difference]:
    if a is b or (name and ignored(name, ignore)):
        return
    if _is_array(a) and _is_array(b):
        yield from _arrays(a, b, name)
    elif isinstance(a, Mapping) and isinstance(b, Mapping) and depth < DEPTH:
        for key in a:
            if key in b:
                yield from _walk(a[key], b[key], _inside(name, key), ignore, depth + 1)
            elif not ignored(_inside(name, key), ignore):
                yield Difference(_inside(name, key), "is missing")
        for key in b:
            if key not in a and not ignored(_inside(name, key), ignore):
                yield Difference(_inside(name, key), f"{_short(b[key])} is new")
    elif isinstance(a, list | tuple) and isinstance(b, list | tuple) and depth < DEPTH:
        if len(a) != len(b):
            yield Difference(name, f"{len(a)} entries, now {len(b)}")
        for index, (one, other) in enumerate(zip(a, b, strict=False)):
            yield from _walk(one, other, _inside(name, index), ignore, depth + 1)
    elif type(a) is type(b) and depth < DEPTH and _holds(a) is not None:
        yield from _walk(_holds(a), _holds(b), name, ignore, depth + 1)
    elif not _same(a, b):
        apart = abs(a - b) if isinstance(a, int | float) and isinstance(b, int | float) else None
        yield Difference(name, f"{_short(a)}, now {_short(b)}", largest=apart)


def _is_array(value: Any) -> bool:
    """A tensor of torch or an array of numpy, without importing either."""
    return hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "reshape")


def _arrays(a: Any, b: Any, name: str) -> Iterator[Difference]:
    a, b = (value.detach().cpu() if hasattr(value, "detach") else value for value in (a, b))
    shape, kind = tuple(a.shape), str(a.dtype).removeprefix("torch.")
    if tuple(b.shape) != shape or b.dtype != a.dtype:
        now = f"{tuple(b.shape)} {str(b.dtype).removeprefix('torch.')}"
        yield Difference(name, f"{shape} {kind}, now {now}", tensor=True)
        return
    if getattr(a, "layout", None) != getattr(b, "layout", None):
        yield Difference(name, f"{a.layout}, now {b.layout}", tensor=True)
        return
    if str(getattr(a, "layout", "torch.strided")) != "torch.strided":
        a, b = a.to_dense(), b.to_dense()
    unlike = (a != b) & ~((a != a) & (b != b))  # NaN is not itself
    count = int(unlike.sum())
    if count:
        size = int(unlike.numel()) if hasattr(unlike, "numel") else int(unlike.size)
        largest = _largest(a, b, unlike)
        by = "" if largest is None else f", by at most {largest:.3g}"
        yield Difference(name, f"{shape} {kind}: {count} of {size} values differ{by}", tensor=True, largest=largest)


def _largest(a: Any, b: Any, unlike: Any) -> float | None:
    if "bool" in str(a.dtype):
        return None
    try:
        one, other = a[unlike], b[unlike]
        if "complex" not in str(a.dtype):
            one, other = (v.double() if hasattr(v, "double") else v.astype(float) for v in (one, other))
        return float(abs(one - other).max())
    except (TypeError, ValueError, IndexError, RuntimeError):  # text, records: they have no distance
        return None


def _holds(value: Any) -> Any:
    """What an object of a user's class consists of; None: it is a plain value."""
    if isinstance(value, str | bytes | int | float | complex | type | None) or callable(value):
        return None
    return getattr(value, "__dict__", None) or None


def _same(a: Any, b: Any) -> bool:
    if type(a) is not type(b) and not (isinstance(a, int | float) and isinstance(b, int | float)):
        return False
    try:
        return bool(a == b) or bool(a != a and b != b)
    except (TypeError, ValueError, RuntimeError):
        return repr(a) == repr(b)


def _inside(name: str, key: Any) -> str:
    return f"{name}.{key}" if name else str(key)


def _short(value: Any) -> str:
    if _is_array(value) and len(tuple(value.shape)):
        return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
