"""Files of two checkpoints, compared: byte by byte, and where these differ by what they hold."""

from __future__ import annotations

import importlib
import json
import pickle
import re
import struct
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from trainables.store.manifest import MANIFEST_NAME
from tuner.inspection.differences import Difference, differences, ignored

_CHUNK = 1 << 20
_SAFE_KINDS = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
"""Of safetensors -> numpy's; what numpy has not is compared as bytes."""
_NEVER_SAME = {".keras": ("date_saved", "shared_object_id")}
"""Ending of a file -> what its library writes into it that is another each time: a date, an object's address."""


def compare(first: Path, second: Path, *, ignore: Sequence[str] = (), unpickle: bool = True) -> Iterator[Difference]:
    """All that differs between the files of two checkpoints; each name begins with that of the file.

    Files that hold equal values count as equal, whatever their bytes. What torch, pickle, numpy, safetensors, JSON,
    HDF5 or zip wrote is read, and text by lines; for pickles this runs code: give only checkpoints of a script that
    one would run, or say `unpickle=False`: then they are compared as bytes.
    """
    names = [_names(directory) for directory in (first, second)]
    for name in sorted({*names[0], *names[1]}):
        if ignored(name, ignore):
            continue
        if name not in names[1]:
            yield Difference(name, "the file is missing")
        elif name not in names[0]:
            yield Difference(name, "the file is new")
        elif (offset := _first_byte(first / name, second / name)) is not None:
            yield from _contents(first / name, second / name, name, offset, ignore, unpickle)


def _names(directory: Path) -> set[str]:
    found = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    return found - {MANIFEST_NAME}


def _first_byte(one: Path, other: Path) -> int | None:
    """Where two files begin to differ; None: nowhere."""
    offset = 0
    with one.open("rb") as a, other.open("rb") as b:
        while True:
            left, right = a.read(_CHUNK), b.read(_CHUNK)
            if left != right:
                same = (at for at, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1])
                return offset + next(same, min(len(left), len(right)))
            if not left:
                return None
            offset += len(left)


def _contents(
    one: Path, other: Path, name: str, offset: int, ignore: Sequence[str], unpickle: bool
) -> Iterator[Difference]:
    try:
        values = _load(one, unpickle), _load(other, unpickle)
    except Exception as error:  # whatever a user's class raises when it is unpickled
        sizes = one.stat().st_size, other.stat().st_size
        why = "" if isinstance(error, _Unknown) else f"; it could not be read: {type(error).__name__}: {error}"
        why = f"; {error}" if isinstance(error, _Closed) else why
        yield Difference(name, f"{sizes[0]} bytes, now {sizes[1]}; they differ from byte {offset} on{why}")
        return
    for found in differences(*values, ignore=(*_NEVER_SAME.get(one.suffix, ()), *ignore)):
        yield Difference(f"{name}: {found.name}" if found.name else name, found.text, found.tensor, found.largest)


class _Unknown(Exception):
    """A file of no kind that is read here."""


class _Closed(Exception):
    """A pickle, which is not to be opened."""


def _load(path: Path, unpickle: bool) -> Any:
    with path.open("rb") as file:
        head = file.read(8)
    if path.suffix == ".json":
        return json.loads(path.read_bytes())
    if path.suffix == ".safetensors":
        return _safetensors(path.read_bytes())
    if path.suffix in (".npy", ".npz"):
        loaded = importlib.import_module("numpy").load(path, allow_pickle=False)
        return dict(loaded) if path.suffix == ".npz" else loaded
    if head[:4] == b"PK\x03\x04":
        return _of_torch(path, unpickle) if _is_of_torch(path) else _zipped(path, unpickle)
    if head == b"\x89HDF\r\n\x1a\n":
        return _hdf5(path)
    if head[:1] == b"\x80":
        return _pickled(path, unpickle)
    return _lines(path)


def _pickled(path: Path, unpickle: bool) -> Any:
    if not unpickle:
        raise _Closed("it is a pickle: what it holds is seen only by running its code (--unpickle)")
    try:
        return pickle.loads(path.read_bytes())
    except pickle.UnpicklingError:
        return _of_torch(path, unpickle)  # as old versions of torch wrote it


def _lines(path: Path) -> dict[str, str]:
    """Text by lines. Raises _Unknown for what is none."""
    data = path.read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise _Unknown from None
    if "\0" in text:
        raise _Unknown
    if text.startswith("tree\nversion="):  # LightGBM: the rounds asked for, which are fewer where it was continued
        text = re.sub(r"^\[num_iterations: \d+\]$", "", text, flags=re.MULTILINE)
    return {f"line {number}": line for number, line in enumerate(text.split("\n"), 1)}


def _zipped(path: Path, unpickle: bool) -> dict[str, Any]:
    """Name -> what it holds, of all files in an archive."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="prove-") as directory, zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            inside = Path(archive.extract(name, directory))
            try:
                found[name] = None if inside.is_dir() else _load(inside, unpickle)
            except (_Unknown, _Closed):
                found[name] = inside.read_bytes()
    return found


def _hdf5(path: Path) -> dict[str, Any]:
    """Name -> array, of all data sets in a file."""
    found: dict[str, Any] = {}
    with importlib.import_module("h5py").File(path) as file:
        file.visititems(lambda name, item: found.update({name: item[()]} if hasattr(item, "shape") else {}))
    return found


def _is_of_torch(path: Path) -> bool:
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/data.pkl") for name in archive.namelist())


def _of_torch(path: Path, unpickle: bool) -> Any:
    torch: Any = importlib.import_module("torch")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        if not unpickle:
            raise _Closed(
                "it holds more than tensors and plain values: what is seen only by running its code (--unpickle)"
            ) from None
        return torch.load(path, map_location="cpu", weights_only=False)


def _safetensors(data: bytes) -> dict[str, Any]:
    """Name -> array; the format is a length, a header in JSON, and the bytes of the tensors."""
    numpy: Any = importlib.import_module("numpy")
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    found: dict[str, Any] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            found[name] = entry
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        kind = _SAFE_KINDS.get(entry["dtype"])
        values = numpy.frombuffer(data[begin:end], dtype=kind or "uint8")
        found[name] = values.reshape(entry["shape"]) if kind else values
    return found
