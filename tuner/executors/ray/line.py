"""The connection between the driver and one agent: batches of orders one way, batches of events the other.

An actor call per batch would do, and does where no connection can be made; it costs a millisecond each way, of which a
trial that reports often would have to wait for two per result. Ray says where an agent is, and when it is dead.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

from trainables.store import fs
from trainables.wire import Frames, framed

Address = tuple[str, int, bytes]
"""(ip, port, key): who has the key may speak."""
_READ = 65536
_CONNECT_S = 5.0
_KNOCK_S = 1.0
"""So long somebody who has connected may take to show that he has the key: others may be waiting behind."""


class Line:
    """One end. `send` may be called from any thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._sending, self._frames = connection, threading.Lock(), Frames()
        with self._socket() as same:
            same.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        """Send a batch. Raises OSError when the other end is gone."""
        with self._sending:
            fs.write(self._connection.fileno(), framed(data))

    def receive(self) -> list[bytes] | None:
        """The batches that are whole by now; waits for something to come. None: the other end is gone."""
        try:
            data = os.read(self._connection.fileno(), _READ)
        except OSError:
            return None
        return self._frames.feed(data) if data else None

    def fileno(self) -> int:
        """Can be read when something comes; it stays open as long as this object lives."""
        return self._connection.fileno()

    def close(self) -> None:
        """End it, for both ends."""
        with contextlib.suppress(OSError), self._socket() as same:  # it may have ended already
            same.shutdown(socket.SHUT_RDWR)  # wakes who reads, which a close alone would not

    def _socket(self) -> socket.socket:
        return socket.socket(fileno=os.dup(self._connection.fileno()))


def open_door(ip: str, met: Callable[[Line], None]) -> Address:
    """Wait, in a thread, for the one who has the key; `met` is called with the line."""
    key = secrets.token_bytes(32)
    listener = socket.create_server((ip, 0))
    port: int = listener.getsockname()[1]

    def accept() -> None:
        with listener:
            while True:
                sock, _ = listener.accept()
                with contextlib.suppress(AuthenticationError, EOFError, OSError):  # somebody else knocked
                    met(_introduced(sock, key, _KNOCK_S, (deliver_challenge, answer_challenge)))
                    return

    threading.Thread(target=accept, name="tuner-door", daemon=True).start()
    return ip, port, key


def connect(address: Address) -> Line | None:
    """The other end; None where it cannot be reached within 5 s: the engine carries messages everywhere."""
    ip, port, key = address
    try:
        sock = socket.create_connection((ip, port), timeout=_CONNECT_S)
        return _introduced(sock, key, _CONNECT_S, (answer_challenge, deliver_challenge))
    except (OSError, EOFError, AuthenticationError):
        return None


def _introduced(
    sock: socket.socket, key: bytes, seconds: float, steps: Sequence[Callable[[Connection, bytes], object]]
) -> Line:
    """The line, once both ends have shown that they have the key. Raises OSError when that takes too long."""
    sock.settimeout(None)
    _set_patience(sock, seconds)
    with contextlib.ExitStack() as stack:
        line = Connection(sock.detach())
        stack.callback(line.close)
        for step in steps:
            step(line, key)
        with socket.socket(fileno=os.dup(line.fileno())) as same:
            _set_patience(same, 0.0)
        stack.pop_all()
        return Line(line)


def _set_patience(sock: socket.socket, seconds: float) -> None:
    """How long one read may wait; 0: for ever. `Connection` reads from the descriptor, and knows no time-out itself."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(seconds), 0))
