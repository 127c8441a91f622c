"""Decoders of our own types, made one at a time.

msgspec notes what it knows of a type at the type, and fills that in afterwards: a thread that decodes the same type
meanwhile reads through a null pointer (msgspec 0.22, a segmentation fault). So what threads may be the first to read is
read by a decoder of this module.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_made: dict[Any, Callable[[Any], Any]] = {}
_making = threading.Lock()


def decoder(kind: Any) -> Callable[[Any], Any]:
    """What decodes JSON to `kind`, a type or a union of types. Raises msgspec.DecodeError when it is called."""
    found = _made.get(kind)
    if found is None:
        with _making:
            found = _made.get(kind)
            if found is None:
                found = _made[kind] = msgspec.json.Decoder(kind).decode
    return found


def later(kind: Any) -> Callable[[Any], Any]:
    """`decoder(kind)`, made when it is first called: to read a hundred annotations takes a while."""
    made: Callable[[Any], Any] | None = None

    def decode_it(data: Any) -> Any:
        nonlocal made
        if made is None:
            made = decoder(kind)
        return made(data)

    return decode_it


def decode(data: bytes | memoryview | str, kind: type[T]) -> T:
    """JSON as `kind`. Raises msgspec.DecodeError."""
    value: T = decoder(kind)(data)
    return value


def _after_fork() -> None:
    """In a child: who was making one is not there any more."""
    global _making
    _making = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
