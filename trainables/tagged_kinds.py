"""Encoders and decoders of the values that JSON lacks, tagged as `{"$": kind, "v": ...}`."""

from __future__ import annotations

import base64
import datetime
import decimal
import io
import math
import pathlib
import re
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import orjson

from trainables.errors import MetricError
from trainables.quick_dataclass import dataclass


class BlobSink(Protocol):
    """Where `dumps` puts what JSON cannot hold."""

    def put(self, data: bytes) -> str:
        """Store the bytes; return the hex BLAKE3 hash of them."""


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


DEPTH = 60
"""Tags nest up to three levels of JSON per level of value, and orjson writes 254."""
INLINE = 64 * 1024
"""Bytes of JSON, or of an array: larger values become blobs where there is a sink."""

BLOBS = frozenset({"blob", "json", "array"})
NAMED = re.compile(rb'"\$":"(?:blob|json|array)","v":\["([0-9a-f]{64})"')
"""A blob in tagged JSON."""

SCALARS = frozenset({str, int, float, bool, type(None)})
STR = {str}


KeyPath = tuple[str, ...]


def name_of(path: KeyPath) -> str:
    return "/".join(path) or "the value"


def tagged(kind: str, value: Any) -> dict[str, Any]:
    return {"$": kind, "v": value}


def tag(value: Any, blobs: BlobSink | None, path: KeyPath) -> Any:
    """The value as a tree that orjson writes."""
    kind = type(value)
    if kind is str:
        return _tag_str(value)
    if kind is float:
        return value if math.isfinite(value) else tagged("float", repr(value))
    if kind is bool or value is None:
        return value
    if kind is int:
        return value if -(2**63) <= value < 2**64 else tagged("int", str(value))
    if len(path) > DEPTH:
        raise MetricError(f"{name_of(path[:3])}/... is nested deeper than {DEPTH} levels, or contains itself")
    if kind is dict:
        if set(map(type, value)) <= STR and "$" not in value:
            try:
                return {_utf8(key): tag(item, blobs, (*path, key)) for key, item in value.items()}
            except UnicodeEncodeError:
                pass  # a key with a lone surrogate
        return tagged("dict", _pairs(value, blobs, path))
    if kind is list:
        return [tag(item, blobs, (*path, str(index))) for index, item in enumerate(value)]
    if kind is tuple:
        return tagged("tuple", [tag(item, blobs, (*path, str(index))) for index, item in enumerate(value)])
    if kind is OrderedDict:
        return tagged("odict", _pairs(value, blobs, path))
    if kind is set or kind is frozenset:
        # sorted, so that equal sets are equal text
        items = sorted((tag(item, blobs, (*path, "{}")) for item in value), key=orjson.dumps)
        return tagged(kind.__name__, items)
    write = WRITERS.get(kind)
    if write is not None and (blobs is None or not _has_zone(value)):
        return tagged(*write(value))
    if kind.__module__ == "numpy":
        found = tag_numpy(value, blobs, path)
        if found is not None:
            return found
    return tag_blob(value, blobs, path)


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
        return tagged("str", base64.b64encode(value.encode("utf-8", "surrogatepass")).decode())
    return value


def _pairs(value: Mapping[Any, Any], blobs: BlobSink | None, path: KeyPath) -> list[Any]:
    return [[tag(key, blobs, (*path, "keys")), tag(item, blobs, (*path, str(key)))] for key, item in value.items()]


WRITERS: dict[type, Callable[[Any], tuple[str, Any]]] = {
    bytes: lambda v: ("bytes", base64.b64encode(v).decode()),
    bytearray: lambda v: ("bytearray", base64.b64encode(v).decode()),
    complex: lambda v: ("complex", [repr(v.real), repr(v.imag)]),
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


def tag_numpy(value: Any, blobs: BlobSink | None, path: KeyPath) -> Any:
    """Scalars and arrays of plain dtypes; None for the rest (objects, records, subclasses)."""
    import numpy as np

    if not (isinstance(value, np.generic) or type(value) is np.ndarray) or value.dtype.kind not in _NUMPY_KINDS:
        return None
    dtype = value.dtype.str
    if isinstance(value, np.generic):
        if value.dtype.kind in "biu" or (value.dtype.kind == "f" and value.dtype.itemsize <= 8):
            return tagged("np", [dtype, tag(value.item(), None, path)])
        return tagged("np", [dtype, base64.b64encode(value.tobytes()).decode()])
    if blobs is not None and value.nbytes > INLINE:
        content = io.BytesIO()
        np.lib.format.write_array(content, value, allow_pickle=False)
        label = f"{value.dtype} array {'x'.join(map(str, value.shape))}"
        return tagged("array", [blobs.put(content.getvalue()), label])
    return tagged("ndarray", [dtype, list(value.shape), base64.b64encode(value.tobytes()).decode()])


def tag_blob(value: Any, blobs: BlobSink | None, path: KeyPath) -> Any:
    label = label_of(value)
    if blobs is None:
        raise MetricError(
            f"{name_of(path)} is a {label} and cannot be written down; report numbers, strings, booleans, None, "
            "or lists and dicts of them"
        )
    import cloudpickle

    try:
        data = cloudpickle.dumps(value)
    except Exception as error:  # whatever a foreign __reduce__ raises
        raise MetricError(f"{name_of(path)} is a {label} and cannot be pickled: {error}") from error
    return tagged("blob", [blobs.put(data), label])


def label_of(value: Any) -> str:
    named = value if isinstance(value, type) or callable(value) else type(value)
    module = getattr(named, "__module__", None) or "?"
    return f"{module}.{getattr(named, '__qualname__', type(value).__qualname__)}"


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


READERS: dict[str, Callable[[Any], Any]] = {
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
