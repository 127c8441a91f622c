"""Which globals pickles name, found without unpickling anything."""

from __future__ import annotations

import io
import lzma
import pickletools
import tarfile
from collections.abc import Iterator
from pathlib import Path

PROTOCOL = b"\x80"
"""What every pickle since protocol 2 begins with."""


def files_of(sample: Path) -> Iterator[tuple[str, bytes]]:
    """Every file of a packed sample, but for what a driver laid out for its own trials, which no later one reads."""
    with lzma.open(sample) as packed, tarfile.open(fileobj=packed) as tar:
        for entry in tar:
            if entry.isreg() and "/.tmp/" not in entry.name:
                content = tar.extractfile(entry)
                assert content is not None
                yield entry.name, content.read()


def globals_of(data: bytes) -> set[tuple[str, str]]:
    """(module, name) of each global in a pickle, those of pickles within its bytes included.

    A module that is pickled by itself has no name. Raises ValueError for what is no pickle.
    """
    found: set[tuple[str, str]] = set()
    stream = io.BytesIO(data)
    while stream.tell() < len(data):  # a file may hold several
        found |= _globals_of_one(stream)
    return found


def globals_within(data: bytes) -> set[tuple[str, str]]:
    """`globals_of` for bytes that may be a pickle, and name none otherwise."""
    if not data.startswith(PROTOCOL):
        return set()
    try:
        return globals_of(data)
    except ValueError:
        return set()


def strings_of(data: bytes) -> list[str]:
    """The strings of a pickle, in their order; not those of pickles within."""
    return [argument for _, argument, _ in pickletools.genops(data) if isinstance(argument, str)]


def _globals_of_one(stream: io.BytesIO) -> set[tuple[str, str]]:
    found = set()
    pushed: list[str | None] = [None, None]
    memo: dict[int, str | None] = {}
    for opcode, argument, _ in pickletools.genops(stream):
        if opcode.name == "MEMOIZE":
            memo[len(memo)] = pushed[-1]
        elif opcode.name in ("PUT", "BINPUT", "LONG_BINPUT"):
            memo[argument] = pushed[-1]
        elif opcode.name in ("GET", "BINGET", "LONG_BINGET"):
            pushed.append(memo[argument])
        elif opcode.name == "STACK_GLOBAL":
            module, name = pushed[-2:]
            if module is None or name is None:
                raise ValueError("a global is named by what is no string")
            found.add((module, name))
            pushed.append(None)
        elif opcode.name in ("GLOBAL", "INST"):
            module, name = argument.split(" ", 1)
            found.add((module, name))
            pushed.append(None)
        else:
            if isinstance(argument, (bytes, bytearray)):
                found |= globals_within(bytes(argument))
            pushed.append(argument if isinstance(argument, str) else None)
            if isinstance(argument, str) and ("cloudpickle.cloudpickle", "subimport") in found:
                found.add((argument, ""))
    return found
