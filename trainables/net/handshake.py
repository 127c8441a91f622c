"""Who connects shows that he has the key, both ways: the challenge of `multiprocessing.connection`, within a time.

That one waits for every single read as long as the socket says: a stranger who sends a byte now and then would hold up
for minutes whoever waits for somebody else.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

HandshakeStep = tuple[Callable[[Connection, bytes], object], float]
"""One half of the handshake, and how many seconds it may take."""
_LONGEST = 256
"""Bytes of a message of the handshake."""


class _TimedConnection(Connection):
    """A connection that waits for a message until a deadline, however it comes in."""

    until: float

    def recv_bytes(self, maxlength: int | None = None) -> bytes:
        with socket.socket(fileno=os.dup(self.fileno())) as peeked, select.epoll() as poll:
            poll.register(peeked, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)
            while not _whole(peeked):
                left = self.until - time.monotonic()
                if left <= 0 or not poll.poll(left):
                    raise TimeoutError("the handshake takes too long")
        return super().recv_bytes(maxlength)


def _whole(sock: socket.socket) -> bool:
    """Whether a read need not wait: a message is whole, too long for one, or the other end is gone."""
    try:
        data = sock.recv(4 + _LONGEST, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    size = int.from_bytes(data[:4], "big", signed=True)
    return not data or (len(data) >= 4 and not len(data) - 4 < size <= _LONGEST)


def introduce(sock: socket.socket, key: bytes, steps: Sequence[HandshakeStep]) -> None:
    """Go through the steps, over a blocking socket. Raises OSError, EOFError or AuthenticationError."""
    with _TimedConnection(os.dup(sock.fileno())) as line:
        for step, seconds in steps:
            line.until = time.monotonic() + seconds
            step(line, key)


def met(accepted: socket.socket, key: bytes, *, within_s: float) -> Connection | None:
    """The line to who has just connected; None for a stranger."""
    accepted.setblocking(True)
    if accepted.family == socket.AF_UNIX:
        _, user, _ = struct.unpack("iII", accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user not in (0, os.geteuid()):  # abstract names are seen by every user of a machine
            accepted.close()
            return None
    else:
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(Exception), accepted:  # whatever a stranger says
        introduce(accepted, key, ((deliver_challenge, within_s), (answer_challenge, within_s)))
        return Connection(accepted.detach())
    return None
