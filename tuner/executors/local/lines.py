"""The driver's ends of a trial's sockets and output pipes: none of them ever blocks."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TextIO

from trainables.net.frames import Frames
from trainables.net.silence import is_gone
from tuner.executors.reactor import Action, Reactor

_READ = 65536


class TrialSocket:
    """One socket of a trial: what does not fit into the kernel's buffer is sent when there is room."""

    __slots__ = ("_outbox", "_reactor", "_sock", "fd", "frames")

    def __init__(self, sock: socket.socket, reactor: Reactor, ready: Action) -> None:
        sock.setblocking(False)
        self._sock, self._reactor = sock, reactor
        self._outbox = bytearray()
        self.fd = sock.fileno()
        self.frames = Frames()
        reactor.watch(self.fd, ready)

    def read(self) -> bytes | None:
        """What there is; b"" at the end, None when there is nothing now."""
        try:
            return self._sock.recv(_READ)
        except BlockingIOError:
            return None
        except OSError as error:
            if not is_gone(error):
                raise
            return b""

    def send(self, data: bytes) -> None:
        """Send, now or as soon as the other end reads; one that is gone is no error."""
        if self._outbox:
            self._outbox += data
            return
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            if not is_gone(error):  # a signal handler of the user's may raise an OSError right here
                raise
            return  # the trial is gone, its end is on the way
        if sent < len(data):
            self._outbox += memoryview(data)[sent:]
            self._reactor.when_writable(self.fd, self._flush)

    def _flush(self) -> None:
        try:
            del self._outbox[: self._sock.send(self._outbox)]
        except BlockingIOError:
            return
        except OSError as error:
            if not is_gone(error):
                raise
            self._outbox.clear()
        if not self._outbox:
            self._reactor.when_writable(self.fd, None)

    def pass_on(self, fds: Sequence[int]) -> bool:
        """Give whoever waits at the other end another line; False: nobody does."""
        try:
            socket.send_fds(self._sock, [b"L"], fds)
        except (BlockingIOError, ConnectionError):
            return False
        return True

    def end(self) -> None:
        """Say that there is no more to come."""
        with contextlib.suppress(OSError):  # the other end is gone
            self._sock.shutdown(socket.SHUT_WR)

    def hush(self) -> None:
        """Wait for it no more; what is left can be read still."""
        self._reactor.forget(self.fd)

    def close(self) -> None:
        self.hush()
        self._sock.close()


class TextSink(Protocol):
    """Where output is shown beside its file."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class OutputPipe:
    """Output of a trial on its way to its file and to wherever it is shown as well."""

    __slots__ = ("_fd", "_file", "_reactor", "_shown", "pipe")

    def __init__(self, path: Path, shown: TextSink | None, reactor: Reactor) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd, self.pipe = os.pipe()
        os.set_blocking(self._fd, False)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._shown, self._reactor = shown, reactor
        reactor.watch(self._fd, lambda events: self.pump())

    def close_pipe(self) -> None:
        """The trial has its end now."""
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe = -1

    def pump(self) -> bool:
        """Pass on what there is; False when there is nothing more now."""
        try:
            data = os.read(self._fd, _READ)
        except BlockingIOError:
            return False
        if not data:
            self._reactor.forget(self._fd)
            return False
        for write in (self._to_file, self._to_shown):
            with contextlib.suppress(OSError, ValueError):  # a full disk or a closed terminal must not block the trial
                write(data)
        return True

    def _to_file(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]

    def _to_shown(self, data: bytes) -> None:
        if self._shown is not None:
            self._shown.write(data.decode(errors="replace"))
            self._shown.flush()

    def close(self) -> None:
        self._reactor.forget(self._fd)
        self.close_pipe()
        os.close(self._fd)
        os.close(self._file)


def terminal(name: str) -> TextIO | None:
    """The driver's stream as it is now: a notebook or a live view may have put its own there."""
    stream: TextIO | None = getattr(sys, name)
    return stream
