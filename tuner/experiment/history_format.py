"""A pack of the journal's history: whole files that a snapshot replaced, compressed one by one, behind an index.

Each part is a member of one gzip file, so that `zcat` prints all of it: the index as a line of JSON, then the files.
The index says where each of them begins, which facts it holds and of when they are.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from trainables.decoding import decoder
from trainables.store import fs
from tuner.experiment.formats import FORMAT

_GZIP = 31
"""What zlib calls a whole gzip member, checksum and all."""
_LEVEL = 3
"""A tenth larger than by the default, in a third of the time: 5 microseconds of a core per fact, all told."""
_CHUNK = 1024 * 1024
_INDEX_BYTES = 64 * 1024 * 1024
"""More than that no index has: a pack may come from a bucket, and what is in it from anybody."""


class PackEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file of a pack: a segment, or the snapshot of what came before the first of them."""

    name: str
    bytes: int
    """Of the file as it was."""
    at: int
    """Where its member begins, counted from the end of the index."""
    size: int
    """Of its member."""
    first: int = 0
    """Numbers of its first and last fact; of a snapshot 0 and the last that it stands for."""
    last: int = 0
    since: float | None = None
    """The earliest and the latest time that its facts tell, in seconds since the epoch; None: they tell none."""
    until: float | None = None


class Index(msgspec.Struct, frozen=True):
    """What a pack holds, in the order of its facts."""

    format: int
    files: list[PackEntry]


class _Metrics(msgspec.Struct, frozen=True):
    timestamp: float | None = None


class _TimedLine(msgspec.Struct, frozen=True):
    at: float | None = None
    metrics: msgspec.Raw = msgspec.Raw(b"null")


_decode_index = decoder(Index)
_decode_timed: Callable[[bytes], _TimedLine] = decoder(_TimedLine)
_decode_metrics: Callable[[msgspec.Raw], _Metrics | None] = decoder(_Metrics | None)


def time_of(body: bytes) -> float | None:
    """The time that a fact tells: its own, or that of the result it holds; None: it tells none."""
    try:
        timed = _decode_timed(body)
        if timed.at is not None:
            return timed.at
        metrics = _decode_metrics(timed.metrics)
    except (msgspec.DecodeError, RecursionError):
        return None  # the metrics are a user's: their timestamp may be anything
    return None if metrics is None else metrics.timestamp


def pack(index: list[PackEntry], members: list[bytes]) -> bytes:
    """The file of these members, in that order."""
    return compressed(msgspec.json.encode(Index(FORMAT, index)) + b"\n") + b"".join(members)


def compressed(data: bytes) -> bytes:
    """A member of that content."""
    return zlib.compress(data, _LEVEL, _GZIP)


def compressed_file(path: Path) -> tuple[bytes, int]:
    """A member of a file's content, which may be large, and the number of bytes in it."""
    packer, parts, size = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP), [], 0
    with fs.open_file(path) as file:
        while data := file.read(_CHUNK):
            parts.append(packer.compress(data))
            size += len(data)
    return b"".join([*parts, packer.flush()]), size


def read_index(path: Path) -> tuple[Index, int]:
    """The index of a pack, and where the members begin. Raises ValueError when it is damaged, or of a newer format."""
    unpacker, text, read = zlib.decompressobj(_GZIP), b"", 0
    with fs.open_file(path) as file:
        while not unpacker.eof:
            data = file.read(65536)
            if not data:
                raise ValueError(f"{path.name} is cut off")
            read += len(data)
            text += _unpacked(unpacker, data, path, _INDEX_BYTES - len(text))
    try:
        index = _decode_index(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{path.name} has no index that can be read: {error}") from None
    if index.format > FORMAT:
        raise ValueError(f"{path.name} has format {index.format}, newer than this version's {FORMAT}")
    return index, read - len(unpacker.unused_data)


def read_member(path: Path, start: int, entry: PackEntry) -> bytes:
    """One file of a pack, as it was. Raises ValueError when it is damaged."""
    if min(entry.at, entry.size, entry.bytes) < 0:
        raise ValueError(f"{path.name} is damaged: its index makes no sense")
    with fs.open_file(path) as file:
        file.seek(start + entry.at)
        data = file.read(entry.size)
    unpacker = zlib.decompressobj(_GZIP)
    content = _unpacked(unpacker, data, path, entry.bytes)
    if not unpacker.eof or len(content) != entry.bytes:
        raise ValueError(f"{path.name} is damaged: {entry.name} in it is not whole")
    return content


def read_all(path: Path) -> Iterator[tuple[PackEntry, bytes]]:
    """Every file of a pack. Raises ValueError when it is damaged."""
    index, start = read_index(path)
    for entry in index.files:
        yield entry, read_member(path, start, entry)
    if start + sum(entry.size for entry in index.files) != fs.size(path):
        raise ValueError(f"{path.name} is damaged: it is not as long as its index says")


def _unpacked(unpacker: zlib._Decompress, data: bytes, path: Path, limit: int) -> bytes:
    """What is packed there, up to one byte more than `limit`: then it is no more than that which is too much."""
    try:
        unpacked = unpacker.decompress(data, limit + 1)
        if len(unpacked) > limit or unpacker.unconsumed_tail:
            raise ValueError(f"{path.name} is damaged: there is more in it than its index says")
        return unpacked
    except zlib.error as error:
        raise ValueError(f"{path.name} is damaged: {error}") from None
