"""A TCP proxy with the faults of networks: latency, resets, outages, silence, slow links; and it counts bytes."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from types import TracebackType

_BLOCK = 64 * 1024


class FaultyProxy:
    """Passes connections on to a port of 127.0.0.1. Its attributes can be changed at any time.

    with FaultyProxy(port) as proxy:
        proxy.reset_share = 0.05
        ... talk to proxy.port ...
    """

    def __init__(self, behind: int, *, seed: int = 0) -> None:
        self.behind = behind
        self.latency_s = 0.0
        """Added to each block on its way to the server."""
        self.bytes_per_s: float | None = None
        """Of each connection, each way."""
        self.reset_share = 0.0
        """So many of the blocks that clients send reset their connection instead."""
        self.outage = False
        """Connections are accepted and reset."""
        self.silent = False
        """Connections are accepted, what comes is taken, and nothing is answered."""
        self.cut_after: int | None = None
        """Reset, once, the connection over which the byte of that number comes from the server."""
        self.sent = self.received = self.resets = self.connections = 0
        """Bytes to and from the server; connections that were reset; and all."""
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> FaultyProxy:
        self._start(self._accept)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()

    def cut(self) -> None:
        """Reset every connection that is open."""
        with self._lock:
            for connection in self._open:
                _reset(connection)

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed: the proxy ends
            with self._lock:
                self.connections += 1
                self._open.add(client)
            if self.outage:
                _reset(client)
                continue
            server = socket.create_connection(("127.0.0.1", self.behind))
            try:
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:  # an outage has begun, and reset it
                server.close()
                continue
            with self._lock:
                self._open.add(server)
            self._start(self._pump, client, server, True)
            self._start(self._pump, server, client, False)

    def _pump(self, source: socket.socket, target: socket.socket, up: bool) -> None:
        try:
            while block := source.recv(_BLOCK):
                if up and self._unlucky():
                    _reset(source)
                    _reset(target)
                    return
                if not up and self._due(len(block)):
                    _reset(source)
                    _reset(target)
                    return
                if up and self.latency_s:
                    time.sleep(self.latency_s)
                if self.bytes_per_s:
                    time.sleep(len(block) / self.bytes_per_s)
                with self._lock:
                    if up:
                        self.sent += len(block)
                    else:
                        self.received += len(block)
                if not self.silent:
                    target.sendall(block)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            _reset(source)
            _reset(target)

    def _due(self, count: int) -> bool:
        with self._lock:
            if self.cut_after is None or self.received + count < self.cut_after:
                return False
            self.cut_after = None
            self.resets += 1
            return True

    def _unlucky(self) -> bool:
        with self._lock:
            unlucky = self.outage or self._random.random() < self.reset_share
            self.resets += unlucky
            return unlucky


def _reset(connection: socket.socket) -> None:
    """Close with RST: both ends see a connection that was reset, and no end of a stream."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RD)  # wakes the thread that reads from it
    except OSError:
        pass  # it is closed already
    connection.close()
