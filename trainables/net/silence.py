"""Connections to other hosts, which may go without a word: when that is noticed, and which errors say so."""

from __future__ import annotations

import errno
import socket

UNANSWERED_S = 20
"""A host that has not acknowledged anything for so many seconds, not even that it was asked, is gone."""
_ASKED_S = 5

_GONE = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN})


def notice_silence(sock: socket.socket) -> None:
    """Have the kernel ask the other end of a TCP connection every 5 s, and end the connection after 20 s of silence."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _ASKED_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _ASKED_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, UNANSWERED_S // _ASKED_S - 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNANSWERED_S * 1000)


def is_gone(error: OSError) -> bool:
    """Whether it says that the other end is not there, and is no error that a signal handler of the user's raised."""
    return isinstance(error, ConnectionError) or error.errno in _GONE
