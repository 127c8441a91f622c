"""A caller's end of a door to a driver: a socket of this host, or connections to another one."""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack, suppress
from multiprocessing import AuthenticationError
from typing import Protocol

import msgspec

from trainables.net import handshake
from trainables.net.frames import READ, Frames, frame
from trainables.net.silence import notice_silence
from tuner.executors.callers.caller_words import (
    MESSAGE,
    AtDoor,
    AtFarDoor,
    Entering,
    FromCaller,
    decode_at_door,
)

_STEP_S = 10.0
"""So long a driver on another host may take to let somebody in."""


class CallerDoor(Protocol):
    """A door that is open. One thread at a time says something, and one hears."""

    def ask(self, message: FromCaller) -> tuple[socket.socket, socket.socket]:
        """Say something that main and side belong to, and return these. Raises OSError when nobody is there."""

    def say(self, message: FromCaller) -> None:
        """Say something else. Raises OSError."""

    def hear(self) -> AtDoor | None:
        """What the driver says next; None: it is gone."""

    def close(self) -> None:
        """Leave, without a word."""


class LocalCallerDoor:
    """To a driver on this host: a socket that keeps messages apart, and passes others on."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def ask(self, message: FromCaller) -> tuple[socket.socket, socket.socket]:
        (main, their_main), (side, their_side) = socket.socketpair(), socket.socketpair()
        with their_main, their_side:
            try:
                ends = [their_main.fileno(), their_side.fileno()]
                socket.send_fds(self.sock, [msgspec.json.encode(message)], ends)
            except OSError:
                main.close()
                side.close()
                raise
        return main, side

    def say(self, message: FromCaller) -> None:
        self.sock.send(msgspec.json.encode(message))

    def hear(self) -> AtDoor | None:
        for _ in range(2):
            try:
                data = self.sock.recv(MESSAGE)
                return decode_at_door(data) if data else None
            except ConnectionResetError:
                continue  # it went with something of ours that it had not read: its last word is there all the same
            except (OSError, msgspec.DecodeError):
                break
        return None

    def close(self) -> None:
        self.sock.close()


class RemoteCallerDoor:
    """To a driver on another host. Whatever is asked for comes and goes over connections of its own.

    Args:
        address: (ip, port) of the driver.
        key: of the file that says so.

    Raises OSError when nobody is there.
    """

    def __init__(self, address: tuple[str, int], key: bytes) -> None:
        self._address, self._key = address, key
        self._name = secrets.token_hex(16)
        self._lines = 0
        self._frames, self._heard = Frames(), list[bytes]()
        self._sock = self._enter(Entering(self._name))

    def ask(self, message: FromCaller) -> tuple[socket.socket, socket.socket]:
        self._lines += 1
        line = self._lines
        with ExitStack() as unless_asked:
            try:
                main = unless_asked.enter_context(self._enter(Entering(self._name, "main", line)))
                side = unless_asked.enter_context(self._enter(Entering(self._name, "side", line)))
            except ConnectionRefusedError:
                raise  # it ends: its last word is to be waited for
            except OSError:
                self._give_up()
                raise
            self._sock.sendall(frame(AtFarDoor(line, message)))
            unless_asked.pop_all()
        return main, side

    def say(self, message: FromCaller) -> None:
        self._sock.sendall(frame(AtFarDoor(0, message)))

    def hear(self) -> AtDoor | None:
        while not self._heard:
            try:
                data = self._sock.recv(READ)
            except OSError:
                return None
            if not data:
                return None
            self._heard += self._frames.feed(data)
        try:
            return decode_at_door(self._heard.pop(0))
        except msgspec.DecodeError:
            return None

    def close(self) -> None:
        self._sock.close()

    def _give_up(self) -> None:
        """It lives, or not: nothing more is heard from it here."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def _enter(self, entering: Entering) -> socket.socket:
        try:
            sock = handshake.connect(self._address, self._key, within_s=_STEP_S)
        except (EOFError, AuthenticationError) as error:
            raise ConnectionError(f"nobody at {self._address} lets this process in") from error
        try:
            notice_silence(sock)
            sock.sendall(frame(entering))
        except OSError:
            sock.close()
            raise
        return sock
