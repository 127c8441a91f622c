"""What `with_parameters` has bound, as a value whose pickle is small: it names the file that large ones are in."""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import tempfile
import uuid
import weakref
from collections.abc import Mapping
from typing import Any

from trainables.errors import InvalidSettingError

_SMALL = 64 * 1024
"""Bytes up to which objects are in the pickle itself."""

_here: weakref.WeakValueDictionary[str, BoundObjects] = weakref.WeakValueDictionary()
"""Those of this process that a pickle refers to: loading it gives the very same objects."""


class BoundObjects:
    """Objects by name. A pickle of it is small; the pickle of a run, which takes them whole, asks for `inlined`."""

    def __init__(self, by_name: Mapping[str, Any]) -> None:
        self.by_name = by_name
        self._key: str | None = None
        self._file: str | None = None

    def inlined(self) -> tuple[Any, ...]:
        """For a pickler's `reducer_override`: the objects in the pickle."""
        return BoundObjects, (self.by_name,)

    def __reduce__(self) -> tuple[Any, ...]:
        import cloudpickle

        if self._file is None or not os.path.exists(self._file):
            data = cloudpickle.dumps(self.by_name, protocol=pickle.HIGHEST_PROTOCOL)
            if len(data) <= _SMALL:
                return _unpickled, (data,)
            fd, self._file = tempfile.mkstemp(prefix="bound-", suffix=".pickle")
            with os.fdopen(fd, "wb") as file:
                file.write(data)
            atexit.register(_remove, self._file, os.getpid())
            self._key = uuid.uuid4().hex
            _here[self._key] = self
        return _referred_to, (self._key, self._file)


def _unpickled(data: bytes) -> BoundObjects:
    return BoundObjects(pickle.loads(data))


def _referred_to(key: str, path: str) -> BoundObjects:
    known = _here.get(key)
    if known is not None:
        return known
    try:
        with open(path, "rb") as file:
            return BoundObjects(pickle.load(file))
    except FileNotFoundError:
        raise InvalidSettingError(
            f"what with_parameters has bound lay in {path}, and the process that pickled the trainable has ended: call "
            "tune.with_parameters again"
        ) from None


def _remove(path: str, owner: int) -> None:
    if os.getpid() == owner:  # and not in a fork of it
        with contextlib.suppress(OSError):
            os.unlink(path)
