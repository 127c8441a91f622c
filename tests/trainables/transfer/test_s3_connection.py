"""Connections for PUTs, and servers that behave in their own ways."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from trainables.errors import TransferError
from trainables.transfer.s3 import S3Backend

OK = 'HTTP/1.1 200 OK\r\nETag: "0"\r\nx-amz-checksum-crc32: NSRBwg==\r\n'


@pytest.mark.parametrize(
    "answer",
    [
        OK + "Connection: close\r\nContent-Length: 0\r\n\r\n",
        OK + "Content-Length: 3\r\n\r\nxyz",
        OK + "Transfer-Encoding: chunked\r\n\r\n3\r\nxyz\r\n0\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n" + OK + "Content-Length: 0\r\n\r\n",
        OK.replace("1.1", "1.0") + "\r\n",
    ],
    ids=["hangs up", "a body", "chunked", "continue", "1.0"],
)
def test_any_answer_of_http_is_understood(s3_backend: S3Backend, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with server(lambda peer: peer.sendall(answer.encode())) as port:
        backend = _sent_to(port, s3_backend, monkeypatch)
        route = backend._client._route
        for number in range(2):
            backend.put(f"{number}", b"abc")
        assert backend._client._route is route
        backend.close()


@pytest.mark.parametrize(
    ("say", "text"),
    [
        (lambda peer: None, "the connection broke"),
        (lambda peer: peer.sendall(b"HTTP/1.1 200 OK\r\nETag"), "the connection broke"),
        (lambda peer: peer.sendall(b"SSH-2.0-OpenSSH\r\n\r\n"), "the connection broke"),
        (lambda peer: peer.recv(1), "does not answer"),
    ],
    ids=["nothing", "half an answer", "no http", "silence"],
)
def test_no_answer_is_what_it_is_to_boto3(
    s3_backend: S3Backend, say: Callable[[socket.socket], object], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with server(say) as port:
        backend = _sent_to(port, s3_backend, monkeypatch)
        with pytest.raises(TransferError, match=text) as raised:
            backend.put("key", b"abc")
        assert raised.value.transient
        backend.close()


def test_a_connection_that_is_said_to_last_is_kept(s3_backend: S3Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[socket.socket] = []

    def lasting(peer: socket.socket) -> None:
        came.append(peer)
        for _ in range(2):
            peer.sendall(f"{OK}Connection: Keep-Alive\r\nContent-Length: 0\r\n\r\n".encode())
            peer.recv(65536)

    with server(lasting) as port:
        backend = _sent_to(port, s3_backend, monkeypatch)
        for number in range(2):
            backend.put(f"{number}", b"abc")
        backend.close()
    assert len(came) == 1


def _sent_to(port: int, backend: S3Backend, monkeypatch: pytest.MonkeyPatch) -> S3Backend:
    """The back end, which has learnt where to send, and sends there instead."""
    backend.read_timeout_s = 0.5
    backend.put("first", b"abc")
    backend._client._route.address = ("127.0.0.1", port)
    assert not backend._client._route.idle, "the first one was boto3's"
    return backend


@contextmanager
def server(say: Callable[[socket.socket], object]) -> Iterator[int]:
    """The port of a server that takes a request of three bytes, answers by `say`, and hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            peer, _ = listener.accept()
            with peer:
                came = b""
                while not came.endswith(b"\r\n\r\nabc"):
                    if not (more := peer.recv(65536)):
                        return
                    came += more
                say(peer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        with socket.create_connection(listener.getsockname()):
            pass
        thread.join()
        listener.close()
