"""A small HTTP proxy of the tests: what passes through it can be looked at, changed or refused."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, str], bytes]

_OF_ONE_CONNECTION = {"content-length", "connection", "transfer-encoding", "date", "server", "keep-alive"}


class Forwarder(ThreadingHTTPServer):
    """Passes every request on to a port of this host. Override `handle_one` to do something else with some."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = port
        self.flip = False
        """Change the last byte of every large body on its way there."""
        self._thread = threading.Thread(target=self.serve_forever)
        self._open, self._closed = 0, threading.Condition()

    def handle_one(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        if self.flip and len(body) > 100_000:
            body = body[:-60_000] + bytes([body[-60_000] ^ 1]) + body[-59_999:]
        return self.ask(method, path, headers, body)

    def ask(self, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.behind)
        connection.request(method, path, body or None, headers)  # with the client's Host: answers carry addresses
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), content

    def __enter__(self) -> Forwarder:
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def settled(self) -> None:
        """Return when nobody is connected any more: all that killed clients had sent has been dealt with."""
        with self._closed:
            assert self._closed.wait_for(lambda: not self._open, 60), f"{self._open} connections stay open"

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._closed:
            self._open += 1
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._closed:
            self._open -= 1
            self._closed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is none of the server's business."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Forwarder

    def _pass_on(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        if len(body) < length:  # its sender died meanwhile: passed on, the server behind would wait for the rest
            self.close_connection = True
            return
        status, headers, content = self.server.handle_one(self.command, self.path, dict(self.headers), body)
        self.send_response(status)
        told = {name.lower(): value for name, value in headers.items()}
        length_told = told.get("content-length", "0") if self.command == "HEAD" else str(len(content))
        for name, value in headers.items():
            if name.lower() not in _OF_ONE_CONNECTION:
                self.send_header(name, value)
        self.send_header("Content-Length", length_told)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = _pass_on

    def log_message(self, *args: Any) -> None:
        """Silent."""
