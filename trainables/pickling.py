"""Streaming pickles of dict checkpoints; errors name the key that cannot be pickled."""

from __future__ import annotations

import functools
import io
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from trainables.errors import CheckpointError
from trainables.store import fs

Dump = Callable[[Any, Any], None]
"""dump(value, file)"""

_NAMED = 8
"""Levels of a dict that are looked through for what cannot be pickled."""


def write(data: dict[str, Any], path: Path, dump: Dump | None = None) -> None:
    """Write a dict with a pickler; `dump` is cloudpickle's, which also takes what is defined in a script.

    Raises CheckpointError naming the key of what cannot be pickled, OSError of the disk.
    """
    dump = dump or _dump
    fd = fs.create(path)
    writer = FileWriter(fd)
    try:
        dump(data, writer)
    except Exception as error:
        if writer.refused is not None:
            raise writer.refused from (None if error is writer.refused else error)
        raise CheckpointError(f"{_unpicklable(data, dump)} cannot be pickled: {_why_not(error)}") from error
    finally:
        fs.close(fd)


def read(file: IO[bytes], name: str) -> Any:
    """What a pickle holds. Raises CheckpointError with `name` for one that cannot be unpickled.

    Tensors come back on the device where they were, or on the CPU where this process does not see that.
    """
    try:
        return _Unpickler(file).load()  # from the file: what it holds is in memory once
    except Exception as error:  # of the classes in it too, whatever their __setstate__ raises
        size = file.seek(0, os.SEEK_END)
        raise CheckpointError(f"{name}: its dict cannot be unpickled: {_why_not(error)} ({size} bytes)") from error


class _Unpickler(pickle.Unpickler):
    """Has its own way to torch's storages, which torch itself refuses to load where their GPU is missing."""

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) == ("torch.storage", "_load_from_bytes"):
            return _storage
        return super().find_class(module, name)


def _storage(data: bytes) -> Any:
    import torch

    return torch.load(io.BytesIO(data), map_location=_where_it_can_be, weights_only=False)


def _where_it_can_be(storage: Any, location: str) -> Any:
    """For `torch.load`: a storage that was on a GPU which this process lacks stays on the CPU. None: where it was."""
    import torch

    kind, _, number = location.partition(":")
    return storage if kind == "cuda" and int(number or 0) >= torch.cuda.device_count() else None


class FileWriter:
    """What a pickler writes to, so that no second copy is made in memory; it remembers what the disk refused."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.refused: OSError | None = None

    def write(self, data: Any) -> int:
        # What is large comes as it is: of an array its buffer, which has a size in bytes and no length.
        with data.raw() if isinstance(data, pickle.PickleBuffer) else memoryview(data) as view:
            try:
                fs.write(self._fd, view)
            except OSError as error:
                self.refused = error
                raise
            size: int = view.nbytes
            return size

    def flush(self) -> None:
        """Nothing is held back; `torch.save` asks for it."""


class CountingWriter(io.RawIOBase):
    """What a pickler writes to that is only to find out whether it can, and how much; nothing is kept."""

    size = 0

    def write(self, data: Any) -> int:
        written = memoryview(data).nbytes
        self.size += written
        return written


def _unpicklable(data: Any, dump: Dump, path: tuple[str, ...] = ()) -> str:
    """The innermost value in a dict that cannot be pickled, by its key and type."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, (list, tuple)) else ()
    for key, value in items if len(path) < _NAMED else ():
        try:
            dump(value, CountingWriter())
        except Exception:
            return _unpicklable(value, dump, (*path, str(key)))
    if not path:
        return "a dict checkpoint"
    return f"the value of {'/'.join(path)!r} ({type(data).__name__}) in a dict checkpoint"


def _why_not(error: Exception) -> str:
    if isinstance(error, (EOFError, pickle.UnpicklingError)):
        return f"it was cut short or damaged: {error}"
    return f"{type(error).__name__}: {error}"


def _dump(value: Any, file: Any) -> None:
    import cloudpickle

    kind = _tensor_pickler() if "torch" in sys.modules else cloudpickle.Pickler
    kind(file).dump(value)


@functools.cache
def _tensor_pickler() -> Any:
    """A pickler that knows the dtypes which torch's own pickles hold and cannot be read with: float8, uint16, ..."""
    import cloudpickle
    import torch

    known = {torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128}
    known |= {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool}

    class TensorPickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            if type(obj) is torch.Tensor and obj.dtype not in known and obj.layout is torch.strided:
                if not (obj.is_meta or obj.is_quantized or obj.requires_grad):
                    content = obj.resolve_conj().contiguous().reshape(-1).view(torch.uint8)
                    return _tensor, (content, obj.dtype, obj.shape)
            return super().reducer_override(obj)

    return TensorPickler


def _tensor(content: Any, dtype: Any, shape: Any) -> Any:
    return content.view(dtype).reshape(shape)


PICKLED_LIMIT = 1024 * 1024


def pickled(value: Any, *, limit: int | None = PICKLED_LIMIT, kind: type = object) -> bytes | None:
    """A value for another process, cloudpickled; None for what does not survive the way as a `kind`, or is too long."""
    import cloudpickle

    if value is None:
        return None
    try:
        data: bytes = cloudpickle.dumps(value)
        if (limit is None or len(data) <= limit) and isinstance(cloudpickle.loads(data), kind):
            return data
    except (Exception, SystemExit):  # whatever its __reduce__ does
        return None
    return None
