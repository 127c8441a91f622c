"""JSON that keeps its types: tuples, int keys, numpy, sets, paths, bytes, infinities come back equal.

What JSON has not is written as `{"$": kind, "v": ...}`. What has no kind (classes, callables, enums, unknown objects)
is pickled into a blob beside the text and named there by its hash; reading without a source of blobs gives a `BlobRef`
and executes nothing. What is large becomes a blob too, shared by all who name it, and not a pickle: an array, or tagged
JSON, which execute nothing when they are read.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import io
import math
import pathlib
import re
import sys
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from trainables.errors import MetricError


class BlobSink(Protocol):
    """Where `dumps` puts what JSON cannot hold."""

    def put(self, data: bytes) -> str:
        """Store the bytes; return the hex BLAKE3 hash of them."""


class BlobSource(Protocol):
    """Where `loads` gets it back."""

    def get(self, hash: str) -> bytes:
        """Return the bytes of that hash, verified."""


@dataclass(frozen=True)
class BlobRef:
    """A blob that was not opened: what it is called, and its hash."""

    hash: str
    label: str = ""
    kind: str = "blob"
    """What its content is: "blob", a pickle; "json", tagged JSON that names no other blob; "array", one in numpy's
    format."""

    def __repr__(self) -> str:
        return f"<{self.label or 'blob'} {self.hash[:8]}>"


_DEPTH = 60
"""Tags nest up to three levels of JSON per level of value, and orjson writes 254."""
_INLINE = 64 * 1024
"""Bytes of JSON, or of an array: larger values become blobs where there is a sink."""

_BLOBS = frozenset({"blob", "json", "array"})
NAMED = re.compile(rb'"\$":"(?:blob|json|array)","v":\["([0-9a-f]{64})"')
"""A blob in tagged JSON."""

_SCALARS = frozenset({str, int, float, bool, type(None)})
_SMALL = _SCALARS - {str}
_PLAIN = _SCALARS | {dict, list}
_STR = {str}


# --- writing ------------------------------------------------------------------------------------------


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
                if blobs is None or len(data) <= _INLINE:
                    return data
                del data  # it is large
                return _with_blobs(value, blobs)
    tree = _tag(value, blobs, ())
    data = orjson.dumps(tree)
    if blobs is None or len(data) <= _INLINE:
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
        if len(text) > _INLINE and type(item) is dict and "$" not in item:
            item = _apart(item, blobs)
            text = orjson.dumps(item)
        if (
            len(text) > _INLINE and NAMED.search(text) is None
        ):  # one that names others would keep them from their readers
            kind = item.get("$", "dict") if type(item) is dict else type(item).__name__
            item = _tagged("json", [blobs.put(text), f"{kind} of {len(text)} bytes"])
        apart[key] = item
    return apart


def _is_plain(value: Any) -> bool:
    """True when orjson writes exactly this value (but for NaN, large ints and "$")."""
    kind = type(value)
    if kind is dict:
        types = set(map(type, value.values()))
        if types <= _SCALARS:
            return True
        children = value.values()
    elif kind is list:
        types = set(map(type, value))
        if types <= _SCALARS:
            return True
        children = value
    else:
        return kind in _SCALARS
    if not types <= _PLAIN:
        return False
    try:
        return all(_is_plain(child) for child in children if type(child) not in _SCALARS)
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


_Path = tuple[str, ...]


def _name(path: _Path) -> str:
    return "/".join(path) or "the value"


def _tagged(kind: str, value: Any) -> dict[str, Any]:
    return {"$": kind, "v": value}


def _tag(value: Any, blobs: BlobSink | None, path: _Path) -> Any:
    """The value as a tree that orjson writes."""
    kind = type(value)
    if kind is str:
        return _tag_str(value)
    if kind is float:
        return value if math.isfinite(value) else _tagged("float", repr(value))
    if kind is bool or value is None:
        return value
    if kind is int:
        return value if -(2**63) <= value < 2**64 else _tagged("int", str(value))
    if len(path) > _DEPTH:
        raise MetricError(f"{_name(path[:3])}/... is nested deeper than {_DEPTH} levels, or contains itself")
    if kind is dict:
        if set(map(type, value)) <= _STR and "$" not in value:
            try:
                return {_utf8(key): _tag(item, blobs, (*path, key)) for key, item in value.items()}
            except UnicodeEncodeError:
                pass  # a key with a lone surrogate
        return _tagged("dict", _pairs(value, blobs, path))
    if kind is list:
        return [_tag(item, blobs, (*path, str(index))) for index, item in enumerate(value)]
    if kind is tuple:
        return _tagged("tuple", [_tag(item, blobs, (*path, str(index))) for index, item in enumerate(value)])
    if kind is OrderedDict:
        return _tagged("odict", _pairs(value, blobs, path))
    if kind is set or kind is frozenset:
        # sorted, so that equal sets are equal text
        items = sorted((_tag(item, blobs, (*path, "{}")) for item in value), key=orjson.dumps)
        return _tagged(kind.__name__, items)
    write = _WRITERS.get(kind)
    if write is not None and (blobs is None or not _has_zone(value)):
        return _tagged(*write(value))
    if kind.__module__ == "numpy":
        tagged = _tag_numpy(value, blobs, path)
        if tagged is not None:
            return tagged
    return _tag_blob(value, blobs, path)


def _has_zone(value: Any) -> bool:
    """Whether its text would have an offset instead of the zone's rules, or not say which of two 2:30 it is."""
    if not isinstance(value, (datetime.datetime, datetime.time)):
        return False
    return bool(value.fold) or type(value.tzinfo) not in (type(None), datetime.timezone)


def _utf8(text: str) -> str:
    text.encode()
    return text


def _tag_str(value: str) -> Any:
    try:
        value.encode()
    except UnicodeEncodeError:
        return _tagged("str", base64.b64encode(value.encode("utf-8", "surrogatepass")).decode())
    return value


def _pairs(value: Mapping[Any, Any], blobs: BlobSink | None, path: _Path) -> list[Any]:
    return [[_tag(key, blobs, (*path, "keys")), _tag(item, blobs, (*path, str(key)))] for key, item in value.items()]


def _float_pair(value: complex) -> list[str]:
    return [repr(value.real), repr(value.imag)]


_WRITERS: dict[type, Callable[[Any], tuple[str, Any]]] = {
    bytes: lambda v: ("bytes", base64.b64encode(v).decode()),
    bytearray: lambda v: ("bytearray", base64.b64encode(v).decode()),
    complex: lambda v: ("complex", _float_pair(v)),
    range: lambda v: ("range", [str(v.start), str(v.stop), str(v.step)]),
    type(pathlib.Path()): lambda v: ("path", _tag_str(str(v))),
    pathlib.PurePosixPath: lambda v: ("posixpath", _tag_str(str(v))),
    pathlib.PureWindowsPath: lambda v: ("windowspath", _tag_str(str(v))),
    datetime.datetime: lambda v: ("datetime", v.isoformat()),
    datetime.date: lambda v: ("date", v.isoformat()),
    datetime.time: lambda v: ("time", v.isoformat()),
    datetime.timedelta: lambda v: ("timedelta", [v.days, v.seconds, v.microseconds]),
    decimal.Decimal: lambda v: ("decimal", str(v)),
    uuid.UUID: lambda v: ("uuid", str(v)),
    BlobRef: lambda v: (v.kind, [v.hash, v.label]),  # one that was read without its source stays what it was
}

_NUMPY_KINDS = "biufcSUmM"


def _tag_numpy(value: Any, blobs: BlobSink | None, path: _Path) -> Any:
    """Scalars and arrays of plain dtypes; None for the rest (objects, records, subclasses)."""
    import numpy as np

    if not (isinstance(value, np.generic) or type(value) is np.ndarray) or value.dtype.kind not in _NUMPY_KINDS:
        return None
    dtype = value.dtype.str
    if isinstance(value, np.generic):
        if value.dtype.kind in "biu" or (value.dtype.kind == "f" and value.dtype.itemsize <= 8):
            return _tagged("np", [dtype, _tag(value.item(), None, path)])
        return _tagged("np", [dtype, base64.b64encode(value.tobytes()).decode()])
    if blobs is not None and value.nbytes > _INLINE:
        content = io.BytesIO()
        np.lib.format.write_array(content, value, allow_pickle=False)
        label = f"{value.dtype} array {'x'.join(map(str, value.shape))}"
        return _tagged("array", [blobs.put(content.getvalue()), label])
    return _tagged("ndarray", [dtype, list(value.shape), base64.b64encode(value.tobytes()).decode()])


def _tag_blob(value: Any, blobs: BlobSink | None, path: _Path) -> Any:
    label = _label(value)
    if blobs is None:
        raise MetricError(
            f"{_name(path)} is a {label} and cannot be written down; report numbers, strings, booleans, None, "
            "or lists and dicts of them"
        )
    import cloudpickle

    try:
        data = cloudpickle.dumps(value)
    except Exception as error:  # whatever a foreign __reduce__ raises
        raise MetricError(f"{_name(path)} is a {label} and cannot be pickled: {error}") from error
    return _tagged("blob", [blobs.put(data), label])


def _label(value: Any) -> str:
    named = value if isinstance(value, type) or callable(value) else type(value)
    module = getattr(named, "__module__", None) or "?"
    return f"{module}.{getattr(named, '__qualname__', type(value).__qualname__)}"


# --- reading ------------------------------------------------------------------------------------------


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
        return _untag(value, None if blobs is None else _Opener(blobs, pickles, unpickled))
    except _NotOpened as found:
        hash, label = found.args
        cause = found.__cause__
        path = _path_of(_untag(value, None), hash) or ()
        why = f"{type(cause).__name__}: {cause}"
        raise MetricError(f"{_name(path)} is a {label} and cannot be unpickled: {why}") from cause


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
            return _untag(orjson.loads(body), None)
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


def _path_of(value: Any, hash: str) -> _Path | None:
    """Where in a value a blob stands that was not opened."""
    if isinstance(value, BlobRef):
        return () if value.hash == hash else None
    inside = value if isinstance(value, Mapping) else dict(enumerate(value)) if isinstance(value, (list, tuple)) else {}
    for key, inner in inside.items():
        path = _path_of(inner, hash)
        if path is not None:
            return (str(key), *path)
    return None


def untag(parsed: Any) -> Any:
    """What `loads` makes of JSON that another reader has parsed already; blobs stay closed."""
    return _untag(parsed, None)


def _untag(value: Any, opener: _Opener | None) -> Any:
    if type(value) is list:
        return [_untag(item, opener) for item in value]
    if type(value) is not dict:
        return value
    if "$" not in value:
        return {key: _untag(item, opener) for key, item in value.items()}
    kind: str = value["$"]
    inner: Any = value.get("v")
    if kind in _BLOBS:
        ref = BlobRef(inner[0], inner[1], kind)
        return ref if opener is None else opener.open(ref)
    read = _READERS.get(kind)
    if read is None:
        raise ValueError(f"a value of kind {kind!r} was written by a newer version")
    return read(_untag(inner, opener))


def _read_np(value: list[Any]) -> Any:
    import numpy as np

    dtype, item = np.dtype(value[0]), value[1]
    if isinstance(item, str):
        return np.frombuffer(base64.b64decode(item), dtype=dtype)[0] if dtype.itemsize else dtype.type()
    return dtype.type(item)


def _read_ndarray(value: list[Any]) -> Any:
    import numpy as np

    dtype, shape = np.dtype(value[0]), tuple(value[1])
    if math.prod(shape) == 0 or dtype.itemsize == 0:
        return np.zeros(shape, dtype)
    return np.frombuffer(base64.b64decode(value[2]), dtype=dtype).reshape(shape).copy()


_READERS: dict[str, Callable[[Any], Any]] = {
    "str": lambda v: base64.b64decode(v).decode("utf-8", "surrogatepass"),
    "float": float,
    "int": int,
    "dict": dict,
    "odict": OrderedDict,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "bytes": base64.b64decode,
    "bytearray": lambda v: bytearray(base64.b64decode(v)),
    "complex": lambda v: complex(float(v[0]), float(v[1])),
    "range": lambda v: range(*map(int, v)),
    "path": pathlib.Path,
    "posixpath": pathlib.PurePosixPath,
    "windowspath": pathlib.PureWindowsPath,
    "datetime": datetime.datetime.fromisoformat,
    "date": datetime.date.fromisoformat,
    "time": datetime.time.fromisoformat,
    "timedelta": lambda v: datetime.timedelta(*v),
    "decimal": decimal.Decimal,
    "uuid": uuid.UUID,
    "np": _read_np,
    "ndarray": _read_ndarray,
}


# --- metrics ------------------------------------------------------------------------------------------


def plain_metrics(metrics: Mapping[Any, Any]) -> dict[Any, Any]:
    """A result as it is logged: numpy, torch and other 0-d scalars become numbers.

    Returns:
        A new dict; nested mappings are dicts too.

    Raises:
        MetricError: a value that cannot be written; the message names its key, nested ones as `a/b`.
    """
    if not set(map(type, metrics)) <= _STR:
        for key in metrics:
            if not isinstance(key, str):
                raise MetricError(f"{key!r} is a {type(key).__name__}: the keys of a result are text")
    try:
        "".join(metrics).encode()
    except UnicodeEncodeError:
        raise MetricError(f"{[*metrics]!r} holds half of a character (a lone surrogate), which no file can") from None
    if set(map(type, metrics.values())) <= _SCALARS:
        return dict(metrics)
    return {key: _metric(value, (str(key),)) for key, value in metrics.items()}


def _metric(value: Any, path: _Path) -> Any:
    kind = type(value)
    if kind in _SCALARS or kind in _WRITERS:
        return value
    if len(path) > _DEPTH:
        raise MetricError(f"{_name(path[:3])}/... is nested deeper than {_DEPTH} levels, or contains itself")
    try:
        if isinstance(value, Mapping):
            return {_key(key, path): _metric(item, (*path, str(key))) for key, item in value.items()}
        if kind in (list, tuple, set, frozenset):
            items = [_metric(item, (*path, str(index))) for index, item in enumerate(value)]
            return items if kind is list else kind(items)
        return _number(value, path)
    except MetricError:
        raise
    except Exception as error:  # whatever a foreign item(), tolist() or __float__ raises: a tensor without data, say
        raise MetricError(
            f"{_name(path)} is a {_label(value)} and cannot be written down: {type(error).__name__}: {error}"
        ) from error


def _key(key: Any, path: _Path) -> Any:
    if type(key) is not str:
        _tag(key, None, (*path, "keys"))  # raises, naming the dict
    return key


def _number(value: Any, path: _Path) -> Any:
    """What is no container as a number, a text, or a list of numbers."""
    if type(value).__module__ == "numpy" and _tag_numpy(value, None, path) is not None:
        return value if value.shape or value.dtype.kind in "mM" else _item(value, path)
    if getattr(value, "shape", None) == () and not type(value).__module__.startswith("numpy.ma"):
        return _item(value, path)
    if "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor):
        return value.detach().cpu().tolist()
    for base in (bool, int, float, str):  # an IntEnum, a user's str: the plain value
        if isinstance(value, base):
            return base.__str__(value) if base is str else base(value)
    return _refuse(value, path)


def _item(value: Any, path: _Path) -> Any:
    item = value.item() if hasattr(value, "item") else value.numpy().item()
    if type(item) in _SCALARS or type(item) in _WRITERS:
        return item
    return value if type(value).__module__ == "numpy" and _tag_numpy(value, None, path) else _refuse(value, path)


def _refuse(value: Any, path: _Path) -> Any:
    return _tag_blob(value, None, path)  # raises, naming the key
