"""Type-preserving JSON: tuples, int keys, numpy, sets, paths, bytes, infinities come back equal.

What JSON has not is written as `{"$": kind, "v": ...}`. What has no kind (classes, callables, enums, unknown objects)
is pickled into a blob beside the text and named there by its hash; reading without a source of blobs gives a `BlobRef`
and executes nothing. What is large becomes a blob too, shared by all who name it, and not a pickle: an array, or tagged
JSON, which execute nothing when they are read.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import orjson

from trainables.errors import MetricError
from trainables.quick_dataclass import dataclass
from trainables.tagged_kinds import BLOBS, INLINE, READERS, SCALARS, KeyPath, name_of, tag, tagged
from trainables.tagged_kinds import NAMED as NAMED
from trainables.tagged_kinds import BlobRef as BlobRef
from trainables.tagged_kinds import BlobSink as BlobSink


class BlobSource(Protocol):
    """Where `loads` gets it back."""

    def get(self, hash: str) -> bytes:
        """Return the bytes of that hash, verified."""


_SMALL = SCALARS - {str}
_PLAIN = SCALARS | {dict, list}


def dumps(value: Any, *, blobs: BlobSink | None = None) -> bytes:
    """Write a value as tagged JSON.

    Args:
        value: anything; what has no tag needs `blobs`.
        blobs: gets what JSON cannot hold, pickled with cloudpickle.

    Raises:
        MetricError: a value that cannot be written; the message names its key.
    """
    if _is_plain(value):
        try:
            data = orjson.dumps(value)
        except TypeError:
            pass  # a large int, a lone surrogate, a str subclass as key
        else:
            # orjson writes NaN and the infinities as null; and a key "$" would read as a tag
            if (b"null" not in data or _is_finite(value)) and b'"$"' not in data:
                if blobs is None or len(data) <= INLINE:
                    return data
                del data  # it is large
                return _with_blobs(value, blobs)
    tree = tag(value, blobs, ())
    data = orjson.dumps(tree)
    if blobs is None or len(data) <= INLINE:
        return data
    del data
    return _with_blobs(tree, blobs)


def _with_blobs(tree: Any, blobs: BlobSink) -> bytes:
    return orjson.dumps(_apart(tree, blobs) if type(tree) is dict and "$" not in tree else tree)


def _apart(tree: dict[str, Any], blobs: BlobSink) -> dict[str, Any]:
    """A dict of JSON in which what is large stands by the name of its blob: the innermost dict's own value."""
    apart = {}
    for key, item in tree.items():
        text = b"" if type(item) in _SMALL else orjson.dumps(item)
        if len(text) > INLINE and type(item) is dict and "$" not in item:
            item = _apart(item, blobs)
            text = orjson.dumps(item)
        if (
            len(text) > INLINE and NAMED.search(text) is None
        ):  # one that names others would keep them from their readers
            kind = item.get("$", "dict") if type(item) is dict else type(item).__name__
            item = tagged("json", [blobs.put(text), f"{kind} of {len(text)} bytes"])
        apart[key] = item
    return apart


def _is_plain(value: Any) -> bool:
    """True when orjson writes exactly this value (but for NaN, large ints and "$")."""
    kind = type(value)
    if kind is dict:
        types = set(map(type, value.values()))
        if types <= SCALARS:
            return True
        children = value.values()
    elif kind is list:
        types = set(map(type, value))
        if types <= SCALARS:
            return True
        children = value
    else:
        return kind in SCALARS
    if not types <= _PLAIN:
        return False
    try:
        return all(_is_plain(child) for child in children if type(child) not in SCALARS)
    except RecursionError:
        return False


def _is_finite(value: Any) -> bool:
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is dict:
        return all(map(_is_finite, value.values()))
    if type(value) is list:
        return all(map(_is_finite, value))
    return True


class _NotOpened(Exception):
    """A blob that is whole and cannot be unpickled: its hash and its label."""


def loads(
    data: bytes,
    *,
    blobs: BlobSource | None = None,
    pickles: bool = True,
    unpickled: Callable[[BlobRef], None] | None = None,
) -> Any:
    """Read tagged JSON back.

    Args:
        data: what `dumps` wrote.
        blobs: opens blobs, which executes what pickles among them hold; without it each stays a `BlobRef`.
        pickles: False: those that are pickles stay a `BlobRef` all the same.
        unpickled: is called before each pickle.

    Raises:
        MetricError: a blob that cannot be unpickled; the message names its key.
    """
    value = orjson.loads(data)
    if b'"$"' not in data:
        return value
    try:
        return untag(value, None if blobs is None else _Opener(blobs, pickles, unpickled))
    except _NotOpened as found:
        hash, label = found.args
        cause = found.__cause__
        path = _path_of(untag(value), hash) or ()
        why = f"{type(cause).__name__}: {cause}"
        raise MetricError(f"{name_of(path)} is a {label} and cannot be unpickled: {why}") from cause


@dataclass(frozen=True)
class _Opener:
    """Opens blobs."""

    source: BlobSource
    pickles: bool
    unpickled: Callable[[BlobRef], None] | None

    def open(self, ref: BlobRef) -> Any:
        if ref.kind == "blob" and not self.pickles:
            return ref
        body = self.source.get(ref.hash)
        if ref.kind == "json":
            return untag(orjson.loads(body))
        if ref.kind == "array":
            import numpy as np

            return np.lib.format.read_array(io.BytesIO(body), allow_pickle=False)
        import cloudpickle

        if self.unpickled is not None:
            self.unpickled(ref)
        try:
            return cloudpickle.loads(body)
        except Exception as error:  # whatever a foreign __setstate__, or a module that is not there, raises
            raise _NotOpened(ref.hash, ref.label) from error


def _path_of(value: Any, hash: str) -> KeyPath | None:
    """Where in a value a blob stands that was not opened."""
    if isinstance(value, BlobRef):
        return () if value.hash == hash else None
    inside = value if isinstance(value, Mapping) else dict(enumerate(value)) if isinstance(value, (list, tuple)) else {}
    for key, inner in inside.items():
        path = _path_of(inner, hash)
        if path is not None:
            return (str(key), *path)
    return None


def untag(value: Any, opener: _Opener | None = None) -> Any:
    """What `loads` makes of JSON that another reader has parsed already; without an opener blobs stay closed."""
    if type(value) is list:
        return [untag(item, opener) for item in value]
    if type(value) is not dict:
        return value
    if "$" not in value:
        return {key: untag(item, opener) for key, item in value.items()}
    kind: str = value["$"]
    inner: Any = value.get("v")
    if kind in BLOBS:
        ref = BlobRef(inner[0], inner[1], kind)
        return ref if opener is None else opener.open(ref)
    read = READERS.get(kind)
    if read is None:
        raise ValueError(f"a value of kind {kind!r} was written by a newer version")
    return read(untag(inner, opener))
