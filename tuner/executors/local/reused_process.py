"""A process that runs one attempt after another with one object (`reuse_actors=True`).

When an attempt has ended well, the process says `Reusable` and waits on the line of that attempt. It gets one byte with
the descriptors of the next attempt's line, and goes on there; at the end of the line it gives its object back and ends.
It greets the driver only when its object has taken the attempt over: an attempt that was not greeted has not begun, and
the driver gives it to a fresh process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from trainables.runtime.notice import notices
from trainables.runtime.reuse import ResetRefusedError, Reuse
from trainables.socket_link import SocketLink
from trainables.wire import Reusable
from tuner.executors.local.first_words import HELLO, receive
from tuner.executors.local.process_state import ProcessState

NEXT = b"L"


class _LaterLink(SocketLink):
    """The line of a later attempt: whatever is said first, the greeting comes before it."""

    def __init__(self, main: socket.socket, side: socket.socket) -> None:
        super().__init__(main, side)
        self._greeted = False

    def greet(self) -> None:
        if not self._greeted:
            self._greeted = True
            super()._send(self._main, HELLO.pack(os.getpid()))

    def _send(self, end: socket.socket, data: bytes) -> None:
        if end is self._main:
            self.greet()
        super()._send(end, data)


def serve(
    main: socket.socket,
    run: Callable[..., int],
    setup: dict[str, Any],
    packed: bytes,
    link: SocketLink,
    pipes: list[int],
) -> int:
    """Run an attempt and those that follow; the exit status of the process.

    Args:
        run: runs one, of which it is given `setup`, `packed`, `link`, `pipes` and where its object comes from.
    """
    state, reuse = ProcessState(), Reuse()
    try:
        while True:
            status = run(setup, packed, link, pipes, reuse=reuse)
            if status or reuse.kept is None:
                return status
            packed = b""
            state.put_back()
            if pipes:
                _silence()  # the driver reads it no more
            following = _next(main, link)
            if following is None:
                return 0
            link.close()
            (main, side, *pipes) = following
            link = later = _LaterLink(main, side)
            reuse.accepted = later.greet
            setup, packed = receive(main)
    except ResetRefusedError:
        return 0
    finally:
        reuse.drop()


def _next(main: socket.socket, link: SocketLink) -> tuple[Any, ...] | None:
    """The sockets of the next attempt, and its pipes for output; None: there is none for this process."""
    try:
        with _told_to_leave():
            link.send(Reusable())
            data, fds, _, _ = socket.recv_fds(main, 1, 4)
    except (ConnectionError, _ToldToLeave):
        return None
    if data != NEXT or len(fds) < 2:
        return None
    return socket.socket(fileno=fds[0]), socket.socket(fileno=fds[1]), *fds[2:]


class _ToldToLeave(BaseException):
    """By a signal, while no attempt runs."""


@contextlib.contextmanager
def _told_to_leave() -> Iterator[None]:
    def leave(number: int, frame: object) -> NoReturn:
        raise _ToldToLeave

    before = [(number, signal.signal(number, leave)) for number in notices()]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _silence() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    for target in (1, 2):
        os.dup2(nowhere, target)
    os.close(nowhere)
