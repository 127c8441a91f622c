"""An authenticated connection: both ends show that they have the key, each step within a time.

The challenge is that of `multiprocessing.connection`, which waits for every single read as long as the socket says: a
stranger who sends a byte now and then would hold up for minutes whoever waits for somebody else.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import struct
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

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
                if left <= 0 or not poll.poll(None if math.isinf(left) else left):
                    raise TimeoutError("the handshake takes too long")
        return super().recv_bytes(maxlength)


def _whole(sock: socket.socket) -> bool:
    """Whether a read need not wait: a message is whole, too long for one, or the other end is gone."""
    try:
        data = sock.recv(4 + _LONGEST, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    size = int.from_bytes(data[:4], "big", signed=True)
    if size < 0 and len(data) >= 4:
        raise OSError("no message of a handshake is that long")  # a read of one would wait for eight bytes more
    return not data or (len(data) >= 4 and not len(data) - 4 < size <= _LONGEST)


def admit(accepted: socket.socket, key: bytes, *, knock_s: float, answer_s: float) -> socket.socket | None:
    """The socket of who has just connected; None for a stranger, who is cut off.

    Args:
        key: who has it may speak.
        knock_s: seconds in which he has to show that he has it: others may be waiting behind.
        answer_s: seconds for the other way round: he may take the connection for made already.
    """
    with contextlib.suppress(Exception), contextlib.ExitStack() as stack:  # whatever a stranger says
        stack.enter_context(accepted)
        accepted.setblocking(True)
        if accepted.family == socket.AF_UNIX:
            _, user, _ = struct.unpack("iII", accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if user not in (0, os.geteuid()):  # abstract names are seen by every user of a machine
                return None
        _introduce(accepted, key, (deliver_challenge, knock_s), (answer_challenge, answer_s))
        stack.pop_all()
        return accepted
    return None


def connect(address: tuple[str, int] | str, key: bytes, *, within_s: float | None = None) -> socket.socket:
    """A socket to who listens at (ip, port) or under an abstract or other name of this machine, and has the key.

    Raises OSError, EOFError or AuthenticationError, also when a step takes longer than `within_s` seconds.
    """
    with contextlib.ExitStack() as stack:
        if isinstance(address, str):
            sock = stack.enter_context(socket.socket(socket.AF_UNIX))
            sock.settimeout(within_s)
            sock.connect(address)
        else:
            sock = stack.enter_context(socket.create_connection(address, timeout=within_s))
        sock.settimeout(None)
        limit_s = math.inf if within_s is None else within_s
        _introduce(sock, key, (answer_challenge, limit_s), (deliver_challenge, limit_s))
        stack.pop_all()
        return sock


def _introduce(sock: socket.socket, key: bytes, *steps: tuple[Callable[[Connection, bytes], object], float]) -> None:
    """Go through both halves of the handshake, each with the seconds that it may take."""
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # small messages do not wait for those before
    with _TimedConnection(os.dup(sock.fileno())) as connection:
        for step, seconds in steps:
            connection.until = time.monotonic() + seconds
            step(connection, key)
