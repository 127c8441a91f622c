"""The connection between the driver and one agent: batches of orders one way, batches of events the other.

An actor call per batch would do, and does where no connection can be made; it costs a millisecond each way, of which a
trial that reports often would have to wait for two per result. Ray says where an agent is, and when it is dead.
"""

from __future__ import annotations

import contextlib
import secrets
import select
import socket
import threading
import weakref
from collections.abc import Callable
from multiprocessing import AuthenticationError

from trainables.errors import LimitError
from trainables.net import handshake
from trainables.net.frames import READ, Frames, framed
from trainables.starting import start_thread

Address = tuple[str, int, bytes]
"""(ip, port, key): who has the key may speak."""
_CONNECT_S = 5.0
_KNOCK_S = 1.0
"""So long somebody who has connected may take to show that he has the key: others may be waiting behind."""
_MUCH = 16 << 20
"""Bytes that wait to be sent, beyond which `wait_for_room` waits."""


class AgentLine:
    """One end. `send` may be called from any thread, and never waits.

    Each end reads in the thread that sends: if both waited for the other to read, they would wait for ever.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket, self._frames = sock, Frames()
        self._changed = threading.Condition()
        self._unsent = bytearray()
        """What did not go out at once."""
        self._sending = False
        """A thread sends what did not, and whatever comes after it."""
        self._hurried = False
        # Not in __del__: where a cycle of garbage holds both, the socket can end first, and warns that it is open.
        weakref.finalize(self, sock.close).atexit = False

    def send(self, data: bytes) -> None:
        """Send a batch, now or as soon as the other end reads. Raises OSError when that is known to be gone."""
        rest = memoryview(framed(data))
        with self._changed:
            if not self._sending:
                with contextlib.suppress(BlockingIOError):
                    rest = rest[self._socket.send(rest, socket.MSG_DONTWAIT) :]
                if not rest:
                    return
                try:
                    start_thread(self._send_rest, name="tuner-line")  # it waits for what is held here
                except LimitError:
                    self.close()  # a part of a batch has gone out: nothing can follow
                    raise
                self._sending = True
            self._unsent += rest

    def wait_for_room(self) -> None:
        """Wait while much is left to be sent: who writes more than the other end reads is held up, not kept in memory.

        For one end only. Nobody waits once the line has ended, or after `hurry`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._hurried or len(self._unsent) <= _MUCH)

    def hurry(self) -> None:
        """From now on nobody waits for room; from any thread."""
        with self._changed:
            self._hurried = True
            self._changed.notify_all()

    def receive(self) -> list[bytes] | None:
        """The batches that are whole by now; waits for something to come. None: the other end is gone."""
        try:
            data = self._socket.recv(READ)
        except OSError:
            return None
        return self._frames.feed(data) if data else None

    def fileno(self) -> int:
        """Can be read when something comes; it stays open as long as this object lives."""
        return self._socket.fileno()

    def close(self) -> None:
        """End it, for both ends; what was not sent yet is not sent any more."""
        with contextlib.suppress(OSError):  # it may have ended already
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes who reads, which a close alone would not

    def dispose(self) -> None:
        """End it, and give its descriptor back: nobody reads any more. What is sent later raises OSError."""
        self.close()
        with self._changed:  # nobody is sending just now
            self._socket.close()

    def _send_rest(self) -> None:
        while True:
            with self._changed:
                rest, self._unsent = memoryview(self._unsent), bytearray()
                self._sending = bool(rest)
                self._changed.notify_all()
            if not rest:
                return
            try:
                self._push(rest)
            except OSError:
                self.close()  # a part of a batch may have gone out: nothing can follow; what came in can be read still
                with self._changed:
                    self._unsent.clear()
                    self._sending = False
                    self._changed.notify_all()
                return

    def _push(self, rest: memoryview) -> None:
        """Send all of it, however long that takes. Raises OSError when the line has ended."""
        ready = select.poll()
        ready.register(self._socket, select.POLLOUT | select.POLLRDHUP)
        while rest:
            ((_, what),) = ready.poll()
            if what & ~select.POLLOUT:  # one that has ended it reads no more, and a send might wait for it still
                raise ConnectionError("the line has ended")
            with contextlib.suppress(BlockingIOError):
                rest = rest[self._socket.send(rest, socket.MSG_DONTWAIT) :]


def open_door(ip: str, met: Callable[[AgentLine], None]) -> Address:
    """Wait, in a thread, for the one who has the key; `met` is called with the line."""
    key = secrets.token_bytes(32)
    listener = socket.create_server((ip, 0))
    port: int = listener.getsockname()[1]

    def accept() -> None:
        with listener:
            while True:
                accepted, _ = listener.accept()
                if (sock := handshake.admit(accepted, key, knock_s=_KNOCK_S, answer_s=_CONNECT_S)) is not None:
                    met(AgentLine(sock))
                    return

    start_thread(accept, name="tuner-door")
    return ip, port, key


def connect(address: Address) -> AgentLine | None:
    """The other end; None where it cannot be reached within 5 s: the engine carries messages everywhere."""
    ip, port, key = address
    try:
        return AgentLine(handshake.connect((ip, port), key, within_s=_CONNECT_S))
    except (OSError, EOFError, AuthenticationError):
        return None
