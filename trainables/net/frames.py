"""Messages over a byte stream: a frame is a 4-byte little-endian length and a body."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import msgspec

_HEADER = struct.Struct("<I")
READ = 65536
"""Bytes that are read at once."""

_encoder = msgspec.json.Encoder()


def encode(message: msgspec.Struct) -> bytes:
    """The body of a frame."""
    return _encoder.encode(message)


def framed(body: bytes) -> bytes:
    """A body with its length before it."""
    return _HEADER.pack(len(body)) + body


def frame(message: msgspec.Struct) -> bytes:
    """The bytes of one message, length first."""
    return framed(_encoder.encode(message))


class Frames:
    """Cuts a byte stream into frame bodies."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Add what was read; return the bodies that are complete now, in order."""
        buffer = self._buffer
        if not buffer and len(data) >= 4 and _HEADER.unpack_from(data)[0] == len(data) - 4:
            return [data[4:]]  # one whole frame: what nearly every read is
        buffer += data
        bodies = []
        while len(buffer) >= 4:
            (size,) = _HEADER.unpack_from(buffer)
            if len(buffer) < 4 + size:
                break
            with memoryview(buffer) as view:  # a slice of the buffer would be a copy of its own
                bodies.append(bytes(view[4 : 4 + size]))
            del buffer[: 4 + size]
        return bodies


class FrameSocket:
    """Both ways over a socket that blocks: `send` from any thread, one reader."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket, self._lock = sock, threading.Lock()

    def send(self, message: msgspec.Struct) -> None:
        """Send one message, whole. Raises OSError when the other end is gone."""
        self.send_body(encode(message))

    def send_body(self, body: bytes) -> None:
        """The same for one that is encoded already."""
        with self._lock:
            self._socket.sendall(framed(body))

    def bodies(self) -> Iterator[bytes]:
        """What comes, until the other end is closed or gone."""
        frames = Frames()
        while data := self._read():
            yield from frames.feed(data)

    def end(self) -> None:
        """Say that nothing more is sent; what is under way arrives."""
        with contextlib.suppress(OSError):  # it has gone already
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()

    def _read(self) -> bytes:
        try:
            return self._socket.recv(READ)
        except OSError:  # reset: killed, with something of ours that it had not read
            return b""
