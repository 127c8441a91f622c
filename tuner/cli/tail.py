"""The lines of a file that grows: the last few, and then what is new."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

BLOCK = 64 * 1024


class Tail:
    """Reads a file, again and again.

    Of a line that a program has written over with carriage returns, as progress bars do, the last state counts.

    Args:
        lines: how many of the last lines are read at first; None: all.
    """

    def __init__(self, lines: int | None = None) -> None:
        self._lines, self._at, self._rest = lines, -1, b""

    def read(self, path: Path, *, last: bool = False) -> Iterator[str]:
        """What is new; a file that is not there, or no file, has nothing.

        Args:
            last: nothing more is written: what has no newline is a line too.
        """
        try:
            with open(path, "rb") as file:
                yield from self._read(file)
        except OSError:
            pass  # not there yet, or not any more
        if last and self._rest:
            yield _text(self._rest)
            self._rest = b""

    def _read(self, file: BinaryIO) -> Iterator[str]:
        size = os.fstat(file.fileno()).st_size
        if self._at < 0:
            self._at = 0 if self._lines is None else _start_of_last(file, size, self._lines)
        elif size < self._at:
            self._at, self._rest = 0, b""  # begun anew
        file.seek(self._at)
        while block := file.read(BLOCK):
            self._at += len(block)
            *lines, rest = (self._rest + block).split(b"\n")
            yield from map(_text, lines)
            # The last sign may be the first half of "\r\n".
            self._rest = rest[rest[:-1].rfind(b"\r") + 1 :]


def _start_of_last(file: BinaryIO, size: int, lines: int) -> int:
    """Where the last `lines` lines begin; a newline at the very end ends the last one."""
    if not lines:
        return size
    start, left = max(0, size - 1), lines
    while start > 0:
        end, start = start, max(0, start - BLOCK)
        file.seek(start)
        block = file.read(end - start)
        newline = len(block)
        while (newline := block.rfind(b"\n", 0, newline)) >= 0:
            left -= 1
            if not left:
                return start + newline + 1
    return 0


def _text(line: bytes) -> str:
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace")
