"""A port that is open to who has the key: where agents come to, and callers of other hosts."""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Callable

from trainables.net import handshake
from trainables.net.silence import notice_silence
from trainables.starting import start_thread

STEP_S = 5.0
"""So long each step of the handshake may take, and each read and write after it until `came` says otherwise."""
_BACKLOG = 128


class Listener:
    """Waits for connections until it is closed. Each is let in by a thread of its own.

    Args:
        ip: of the interface to listen at. Raises OSError where this host has no such address.
        came: called in that thread with a connection that is let in, and the address at its other end. It owns the
            connection when it returns; when it raises OSError, the connection is closed.
        name: of the thread that waits.

    A connection whose other end is silent for 20 s ends by itself (`notice_silence`).
    """

    def __init__(self, ip: str, came: Callable[[socket.socket, str], None], *, name: str = "tuner-listener") -> None:
        self._came = came
        self.key = secrets.token_bytes(32)
        self._socket = socket.create_server((ip, 0), family=family_of(ip), backlog=_BACKLOG)
        self.ip, self.port = ip, int(self._socket.getsockname()[1])
        start_thread(self._accept, name=name)

    def close(self) -> None:
        """Nobody comes any more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                accepted, address = self._socket.accept()
            except OSError:
                return  # closed
            start_thread(self._admit, name="tuner-admit", args=(accepted, str(address[0])))

    def _admit(self, accepted: socket.socket, ip: str) -> None:
        """In a thread of its own: a stranger who says nothing holds up nobody."""
        sock = handshake.admit(accepted, self.key, knock_s=STEP_S, answer_s=STEP_S)
        if sock is None:
            return
        try:
            notice_silence(sock)
            sock.settimeout(STEP_S)
            self._came(sock, ip)
        except OSError:
            sock.close()


def family_of(ip: str) -> socket.AddressFamily:
    """Of an address as text."""
    return socket.AF_INET6 if ":" in ip else socket.AF_INET
