"""The doors of a driver: a socket that its callers find, and a connection for each that has the session open.

Only the same user gets in: the directory of the socket is closed to others, and the kernel says who is at its other
end. A caller is gone when its connection ends, or its process, whose children may hold the connection.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from tuner.executors.base import Event
from tuner.executors.callers.caller_words import MESSAGE, Entering, FromCaller, LetIn, decode_from_caller
from tuner.executors.callers.far_doors import FarDoor, listen_for_callers
from tuner.executors.callers.open_door import Door
from tuner.executors.reactor import Action, Reactor

BACKLOG = 128
LONGEST = 100
_PEER = struct.Struct("iII")


def peer_of(sock: socket.socket) -> tuple[int, int]:
    """(pid, user) of who is at the other end; pid 0: a process of another pid namespace."""
    pid, user, _ = _PEER.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return pid, user


@contextlib.contextmanager
def reachable(path: Path) -> Iterator[str]:
    """A name for a socket's path that fits into the 108 bytes which the kernel has for one."""
    name = os.fspath(path)
    if len(os.fsencode(name)) < LONGEST:
        yield name
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


class Visitors(Protocol):
    """Who hears what callers say."""

    def said(self, door: Door, message: FromCaller, ends: list[socket.socket], events: list[Event]) -> None:
        """A message, and the sockets that came with it."""

    def gone(self, door: Door, events: list[Event]) -> None:
        """A caller is gone, in whatever way. Told once."""


class Doors:
    """Lets callers in, and hears them. All in the thread of the reactor, but the constructor.

    Args:
        directory: of the socket; closed to others, and short.
        listen: the IP address at which callers of other hosts are let in; "": they are not.
    """

    def __init__(self, reactor: Reactor, visitors: Visitors, directory: Path, *, listen: str = "") -> None:
        self.welcome = LetIn(0)
        """What callers are told first."""
        self._reactor, self._visitors = reactor, visitors
        self.open: set[Door] = set()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = directory / "door"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with reachable(self.path) as path:
            self._listener.bind(path)
        self._listener.listen(BACKLOG)
        self._listener.setblocking(False)
        reactor.watch(self._listener.fileno(), lambda events: self._accept())
        self.far = listen_for_callers(listen, self._enter) if listen else None

    def stop_listening(self) -> None:
        """Nobody gets in any more: who knocks finds no driver, and waits for its end."""
        if self._listener.fileno() >= 0:
            self._reactor.forget(self._listener.fileno())
            self._listener.close()
        if self.far is not None:
            self.far.close()

    def close(self, door: Door) -> None:
        """That caller is not heard any more."""
        if door in self.open:
            self.open.discard(door)
            self._reactor.forget(door.sock.fileno())
            if door.process >= 0:
                self._reactor.forget(door.process)
            door.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # who knocked has left
            self.let_in(self._listener.accept()[0])

    def let_in(self, sock: socket.socket) -> None:
        """Whoever is at the other end is a caller, if it is of the same user."""
        pid, user = peer_of(sock)
        if user not in (0, os.geteuid()):
            sock.close()
            return
        process = -1
        if pid:
            with contextlib.suppress(OSError):  # gone already: its connection says so
                process = os.pidfd_open(pid)
        door = Door(sock, pid, process)
        self._open(door, lambda events: self._hear(door, events))
        if process >= 0:
            self._reactor.watch(process, lambda events: self.lose(door, events))

    def _open(self, door: Door, heard: Action) -> None:
        self.open.add(door)
        door.sock.setblocking(False)
        self._reactor.watch(door.sock.fileno(), heard)
        door.tell(self.welcome)

    def _enter(self, sock: socket.socket, entering: Entering) -> None:
        """In a thread of the listener: a connection of another host, which has the key."""
        self._reactor.call_soon(lambda events: self._let_in_from_afar(sock, entering, events))

    def _let_in_from_afar(self, sock: socket.socket, entering: Entering, events: list[Event]) -> None:
        if self._listener.fileno() < 0:
            sock.close()  # it ends
            return
        if entering.part == "door":
            door = FarDoor(sock, 0, name=entering.door)
            self._open(door, lambda events: self._hear_from_afar(door, events))
            return
        for each in self.open:
            if isinstance(each, FarDoor) and each.name == entering.door:
                self._pass_on(each, each.add_end(entering, sock), events)
                return
        sock.close()

    def _hear_from_afar(self, door: FarDoor, events: list[Event]) -> None:
        try:
            whole = door.hear()
        except (OSError, msgspec.DecodeError):
            self.lose(door, events)
        else:
            self._pass_on(door, whole, events)

    def _pass_on(self, door: FarDoor, whole: list[tuple[FromCaller, list[socket.socket]]], events: list[Event]) -> None:
        for message, ends in whole:
            self._visitors.said(door, message, ends, events)

    def _hear(self, door: Door, events: list[Event]) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(door.sock, MESSAGE, 2)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        ends = [socket.socket(fileno=fd) for fd in fds]
        try:
            message = decode_from_caller(data) if data else None
        except msgspec.DecodeError:
            message = None  # no caller of ours
        if message is None:
            for end in ends:
                end.close()
            self.lose(door, events)
        else:
            self._visitors.said(door, message, ends, events)

    def lose(self, door: Door, events: list[Event]) -> None:
        """That caller is gone."""
        if door in self.open:
            self.close(door)
            self._visitors.gone(door, events)
