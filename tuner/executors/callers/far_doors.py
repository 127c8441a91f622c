"""Doors for callers of other hosts: a port that is open to who has the key, and what comes over several connections.

The key stands in a file of the experiment that only its user can read: callers see the same directory.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from trainables.net.frames import READ, Frames, frame
from trainables.net.listener import STEP_S, Listener
from tuner.executors.callers.caller_words import (
    MESSAGE,
    AtFarDoor,
    Entering,
    FromCaller,
    decode_at_far_door,
    decode_entering,
)
from tuner.executors.callers.open_door import Door

Whole = list[tuple[FromCaller, list[socket.socket]]]
"""Messages, and the sockets that belong to them."""


@dataclass(eq=False, slots=True)
class FarDoor(Door):
    """A caller on another host. What it asks for is whole when main and side have come as well, in whatever order."""

    name: str = ""
    """By which its other connections know it."""
    _frames: Frames = field(default_factory=Frames)
    _parts: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Line -> what has come of it."""

    def tell(self, message: msgspec.Struct) -> None:
        self.sock.settimeout(STEP_S)  # there is room, but with one that has not listened for long
        with contextlib.suppress(OSError):
            self.sock.sendall(frame(message))
        self.sock.setblocking(False)

    def close(self) -> None:
        self.sock.close()
        for parts in self._parts.values():
            for part in ("main", "side"):
                if part in parts:
                    parts[part].close()
        self._parts.clear()

    def hear(self) -> Whole:
        """Read once; returns what is whole now. Raises OSError at its end, DecodeError for what is none of ours."""
        try:
            data = self.sock.recv(READ)
        except BlockingIOError:
            return []
        if not data:
            raise ConnectionError("the caller is gone")
        whole: Whole = []
        for body in self._frames.feed(data):
            asked: AtFarDoor = decode_at_far_door(body)
            whole += self._add(asked.line, "said", asked.said) if asked.line else [(asked.said, [])]
        return whole

    def add_end(self, entering: Entering, sock: socket.socket) -> Whole:
        """Main or side of a line has come; returns what is whole now."""
        return self._add(entering.line, entering.part, sock)

    def _add(self, line: int, part: str, what: Any) -> Whole:
        parts = self._parts.setdefault(line, {})
        parts[part] = what
        if len(parts) < 3:
            return []
        del self._parts[line]
        return [(parts["said"], [parts["main"], parts["side"]])]


def listen_for_callers(ip: str, entered: Callable[[socket.socket, Entering], None]) -> Listener:
    """Wait for callers of other hosts at an interface of this one. Raises OSError where there is no such address.

    Args:
        entered: called from any thread with a connection that is let in, and what was said first there.
    """

    def came(sock: socket.socket, ip: str) -> None:
        try:
            entering = decode_entering(_first_body(sock))
        except msgspec.DecodeError:
            sock.close()
            return
        sock.settimeout(None)
        entered(sock, entering)

    return Listener(ip, came, name="tuner-callers")


def _first_body(sock: socket.socket) -> bytes:
    """The first frame, and not a byte of what follows. Raises OSError."""
    size = int.from_bytes(_exactly(sock, 4), "little")
    if size > MESSAGE:
        raise OSError(f"a first word of {size} bytes is none of ours")
    return _exactly(sock, size)


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        if not piece:
            raise ConnectionError("the caller is gone")
        data += piece
    return data
