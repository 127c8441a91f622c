"""Files on their way between processes, in pieces of bounded size: cut, read, written, and hashed as they pass."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import blake3

Piece = tuple[str, int, int]
"""(name, offset, count)"""


def cut(files: Iterable[tuple[str, int]], most: int) -> Iterator[list[Piece]]:
    """Files, by name and size, cut and put together to lists of at most `most` bytes each; of each there is a piece."""
    batch: list[Piece] = []
    room = most
    for name, size in files:
        offset = 0
        while offset < size or not (size or offset):
            count = min(size - offset, room)
            batch.append((name, offset, count))
            offset, room = offset + count, room - count
            if room == 0:
                yield batch
                batch, room = [], most
            if not size:
                break
    if batch:
        yield batch


def read(path: Path, offset: int, count: int) -> bytes:
    """A piece of a file; less where that is shorter."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return os.pread(fd, count, offset)
    finally:
        os.close(fd)


def write(path: Path, offset: int, data: bytes | memoryview, *, fresh: bool = False, mode: int = 0o666) -> None:
    """Write all of a piece, or raise OSError; `fresh`: the first empties what is there; `mode`: of a file it makes."""
    emptied = os.O_TRUNC if fresh and not offset else 0
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | emptied, mode)
    try:
        rest = memoryview(data)
        while rest:  # a disk that is nearly full takes a part, and only then says so
            count = os.pwrite(fd, rest, offset)
            rest, offset = rest[count:], offset + count
    finally:
        os.close(fd)


def send(connection: Connection, directory: Path, files: Iterable[tuple[str, int]], most: int) -> None:
    """Send files, in that order, to who calls `receive` with the same list and bound; their hash at last.

    Raises OSError, also when a file is shorter than it is said to be.
    """
    hasher = blake3.blake3()
    for batch in cut(files, most):
        parts = [read(directory / name, offset, count) for name, offset, count in batch]
        for (name, _, count), part in zip(batch, parts, strict=True):
            if len(part) != count:
                raise OSError(f"{directory / name} was shortened while it was sent")
        data = b"".join(parts)
        hasher.update(data)
        connection.send_bytes(data)
    connection.send_bytes(hasher.digest())


def receive(
    connection: Connection, files: Iterable[tuple[str, int]], most: int, take: Callable[[str, int, memoryview], None]
) -> bool:
    """Have every piece of what `send` sends taken: name, offset, content. False: it is not what was sent."""
    hasher = blake3.blake3()
    for batch in cut(files, most):
        data = connection.recv_bytes(most)
        hasher.update(data)
        rest = memoryview(data)
        for name, offset, count in batch:
            take(name, offset, rest[:count])
            rest = rest[count:]
    return connection.recv_bytes(hasher.digest_size) == hasher.digest()
