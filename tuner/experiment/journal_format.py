"""How facts stand in a segment and in a snapshot. Bodies are opaque JSON; what they mean is `tuner.experiment.events`.

A line is `{"n":<sequence number>,"c":"<crc32 of the body>","f":<body>}`; a snapshot is such an object with a longer
head. The body of a segment's first line also says its format, as `"format"`, its first key; none is 1. So a version
that knows of no format in lines still reads them as lines, and experiment.json tells it to leave them alone.
"""

from __future__ import annotations

from typing import Literal
from zlib import crc32

import msgspec

from trainables.decoding import decoder
from trainables.quick_dataclass import dataclass
from tuner.experiment.formats import FORMAT

_MARK = b'{"format":%d,' % FORMAT
MARK_BYTES = len(_MARK)
"""So much longer is the first line of a segment."""


@dataclass(frozen=True)
class GenerationLink:
    """One generation of a history: its number, its id, and the last fact that the next one took over."""

    generation: int
    id: str | None
    last_seq: int


class SegmentHead(msgspec.Struct, frozen=True):
    """What the first fact of a generation says of its parent."""

    kind: str = ""
    parent: int | None = None
    parent_id: str | None = None
    parent_seq: int = 0


class _SnapshotHead(msgspec.Struct, frozen=True):
    format: int
    generation: int
    seq: int
    parents: list[tuple[int, str | None, int]]
    c: str
    f: Literal[0]


_decode_head = decoder(SegmentHead)
_decode_snapshot_head = decoder(_SnapshotHead)


def line(seq: int, body: bytes) -> bytes:
    """A fact as a line; read by `parse_lines`."""
    return b'{"n":%d,"c":"%08x","f":%b}\n' % (seq, crc32(body), body)


def first_line(written: bytes) -> bytes:
    """A line as the first one of a segment, which says the format of all."""
    ((seq, body),) = parse_lines(written)[0]
    return line(seq, _MARK + body[1:])


def parse_lines(data: bytes) -> tuple[list[tuple[int, bytes]], int]:
    """The facts of a segment up to its first line that is not whole, and the number of bytes from there on."""
    lines = data.split(b"\n")
    rest = len(lines.pop())  # what follows the last newline is torn, or nothing
    facts: list[tuple[int, bytes]] = []
    for number, text in enumerate(lines):
        comma = text.find(b',"c":"', 5, 40)
        body = text[comma + 20 : -1]
        try:
            if comma < 0 or int(text[comma + 6 : comma + 14], 16) != crc32(body):
                raise ValueError
            facts.append((int(text[5:comma]), body))
        except ValueError:
            return facts, rest + sum(len(later) + 1 for later in lines[number:])
    return facts, rest


def read_head(body: bytes) -> SegmentHead:
    """Whom a generation continues, from its first fact; nobody when that says nothing."""
    try:
        head = _decode_head(body)
    except (msgspec.DecodeError, RecursionError):
        return SegmentHead()
    return head if head.kind == "generation" else SegmentHead()


def snapshot(generation: int, seq: int, parents: tuple[GenerationLink, ...], body: bytes) -> bytes:
    """A snapshot's file."""
    chain = msgspec.json.encode([(link.generation, link.id, link.last_seq) for link in parents])
    head = b'{"format":%d,"generation":%d,"seq":%d,"parents":%b,"c":"%08x","f":'
    return b"".join((head % (FORMAT, generation, seq, chain, crc32(body)), body, b"}\n"))


def parse_snapshot(data: bytes) -> tuple[tuple[GenerationLink, ...], bytes]:
    """The chain of parents and the body of a snapshot. Raises ValueError when it is damaged."""
    at = data.find(b',"f":') + 5
    body = data[at:-2]
    try:
        head = _decode_snapshot_head(data[:at] + b"0}")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if int(head.c, 16) != crc32(body) or not data.endswith(b"}\n"):
        raise ValueError("its checksum does not match")
    return tuple(GenerationLink(*parent) for parent in head.parents), body
