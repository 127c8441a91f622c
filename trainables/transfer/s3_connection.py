"""A kept connection over which PUTs are sent, one after another."""

from __future__ import annotations

import io
import select
import socket
import ssl
import struct
from http.client import HTTPException, HTTPResponse
from typing import Any, NamedTuple

BLOCK = 256 * 1024
_HEAD = 65536
"""Bytes that an answer's head may have."""


class Answered(NamedTuple):
    """What a server answered."""

    status: int
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


class NotConnected(OSError):
    """There is no connection; nothing was sent. The cause says why."""


class Connection:
    """A connection to a server.

    Args:
        address: host and port.
        tls: of a connection with TLS.
        connect_s: to connect within so many seconds.
        silence_s: the server may neither take nor say anything for so long.

    Raises:
        NotConnected: it cannot be made.
    """

    def __init__(
        self, address: tuple[str, int], tls: ssl.SSLContext | None, connect_s: float, silence_s: float
    ) -> None:
        self.open = True
        try:
            plain = socket.create_connection(address, connect_s)
            try:
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=address[0])
            except BaseException:
                plain.close()
                raise
        except OSError as error:
            raise NotConnected(f"{address[0]}:{address[1]}") from error
        self._tls = tls is not None
        if self._tls:
            self._socket.settimeout(silence_s)
            return
        self._socket.settimeout(None)  # with one Python asks before each call whether it would block
        limit = struct.pack("ll", int(silence_s), int(silence_s % 1 * 1_000_000))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def usable(self) -> bool:
        """Whether the server has not hung up: it has nothing to say before it is asked."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def exchange(self, head: bytes, body: Any) -> Answered:
        """Send a request and return its answer.

        Args:
            head: down to its empty line.
            body: bytes, or what has a `read` that returns the next block of them.

        Raises:
            TimeoutError: the server has been silent for too long.
            OSError: the connection broke.
        """
        try:
            if hasattr(body, "read"):
                self._send(head, body.read(BLOCK))
                while block := body.read(BLOCK):
                    self._socket.sendall(block)
            else:
                self._send(head, body)
            return self._answer()
        except BlockingIOError as error:  # SO_RCVTIMEO and SO_SNDTIMEO
            raise TimeoutError("the server is silent") from error

    def close(self) -> None:
        self.open = False
        self._socket.close()

    def _send(self, head: bytes, block: Any) -> None:
        """In one packet where there is room for it."""
        if self._tls:
            self._socket.sendall(head + bytes(block))
            return
        sent = self._socket.sendmsg([head, block])
        if sent < len(head):
            self._socket.sendall(head[sent:])
            sent = len(head)
        if sent < len(head) + len(block):
            self._socket.sendall(memoryview(block)[sent - len(head) :])

    def _answer(self) -> Answered:
        came = b""
        while b"\r\n\r\n" not in came:
            more = self._socket.recv(_HEAD)
            if not more or len(came) > _HEAD:
                raise ConnectionResetError("hung up, or there is no end of its answer's head")
            came += more
        if came.startswith(b"HTTP/1.1 200 ") and came.endswith(b"\r\n\r\n"):
            lines = came[:-4].decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            lasting = headers.get("connection", "keep-alive").lower() == "keep-alive"
            if lasting and headers.get("content-length") == "0":
                return Answered(200, headers, b"")
        return self._any(came)

    def _any(self, came: bytes) -> Answered:
        """An answer of any form; the connection is not used again."""
        try:
            response = HTTPResponse(_Came(came, self._socket), method="PUT")  # type: ignore[arg-type]
            response.begin()
            body = response.read()
        except HTTPException as error:
            raise ConnectionResetError(f"no answer of HTTP: {error}") from error
        finally:
            self.close()
        return Answered(response.status, {name.lower(): value for name, value in response.getheaders()}, body)


class _Came(io.RawIOBase):
    """A socket of whose bytes some have been read, as HTTPResponse reads it."""

    def __init__(self, came: bytes, rest: socket.socket) -> None:
        self._came = came
        self._rest = rest

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._came:
            return self._rest.recv_into(buffer)
        count = min(len(buffer), len(self._came))
        buffer[:count], self._came = self._came[:count], self._came[count:]
        return count
