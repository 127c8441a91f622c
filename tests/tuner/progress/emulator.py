"""A terminal for tests: a pseudo terminal that a program writes to, and what a person would see on it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from typing import Any

import pyte


class Emulator:
    """A program in a terminal of so many columns. Use as a context manager: it ends the program."""

    def __init__(self, command: list[str], columns: int, rows: int = 30, **environment: str) -> None:
        self._screen = pyte.HistoryScreen(columns, rows, history=2000)
        self._stream = pyte.ByteStream(self._screen)
        self._ours, theirs = pty.openpty()
        self._set_size(columns, rows)
        environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": "", **environment}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            if not environ.get(name):
                environ.pop(name, None)
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ, start_new_session=True
        )
        os.close(theirs)
        self.raw = b""

    def __enter__(self) -> Emulator:
        return self

    def __exit__(self, *error: Any) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    @property
    def lines(self) -> list[str]:
        """What is on the screen, without what is blank."""
        return [line.rstrip() for line in self._screen.display if line.strip()]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def colours(self, word: str) -> set[str]:
        """Of the lines that hold the word."""
        found = [number for number, line in enumerate(self._screen.display) if word in line]
        return {cell.fg for number in found for cell in self._screen.buffer[number].values()}

    def until(self, seen: Callable[[Emulator], bool], timeout_s: float = 60) -> None:
        """Show what the program writes until this is seen, or it has ended."""
        end = time.monotonic() + timeout_s
        while not seen(self):
            assert time.monotonic() < end, self.text
            ready, _, _ = select.select([self._ours], [], [], 0.1)
            try:
                came = os.read(self._ours, 65536) if ready else None
            except OSError:
                came = b""  # the program has ended
            if came == b"":
                break
            self.raw += came or b""
            self._stream.feed(came or b"")

    def ended(self, timeout_s: float = 60) -> int:
        """Show all until the program ends; its status."""
        self.until(lambda _: False, timeout_s)
        return self.process.wait(timeout_s)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def resize(self, columns: int, rows: int = 30) -> None:
        self._screen.resize(rows, columns)
        self._set_size(columns, rows)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
