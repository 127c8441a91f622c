"""Strangers at the door: connections over which nothing is asked, and requests that are none."""

from __future__ import annotations

import contextlib
import shutil
import socket
from pathlib import Path

import httpx
import pytest

from tests.tuner.ui.served import client, data, serving, stream
from tuner.ui import app, patience
from tuner.ui.ui_server import UiServer


def _answer(server: UiServer, request: str) -> bytes:
    """All that comes until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.access.port), timeout=30) as line:
        line.sendall(request.encode("latin-1"))
        return b"".join(iter(lambda: line.recv(65536), b""))


def _head(server: UiServer, method: str, path: str, *more: str) -> str:
    own = (f"Host: 127.0.0.1:{server.access.port}", f"Authorization: Bearer {server.access.token}", "Connection: close")
    return "\r\n".join([f"{method} {path} HTTP/1.1", *own, *more, "", ""])


def test_who_asks_nothing_is_let_go(experiment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "ASK_S", 0.3)
    with serving([experiment]) as server, client(server) as pages:
        for begun in ("", "GET / HT", "POST /e/first/orders HTTP/1.1\r\nHost: x"):
            assert _answer(server, begun) == b""
        assert data(pages, "e/first/overview.json")["trials"] == 6


def test_an_order_that_never_comes_whole_is_not_waited_for(server: UiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "BODY_S", 0.2)
    assert _answer(server, _head(server, "POST", "/e/first/orders", "Content-Length: 100") + "{").startswith(
        b"HTTP/1.1 400"
    )


def test_many_who_ask_nothing_keep_nobody_out(
    server: UiServer, pages: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "WAITING", 20)
    with contextlib.ExitStack() as stack:
        where = ("127.0.0.1", server.access.port)
        lines = [stack.enter_context(socket.create_connection(where, timeout=30)) for _ in range(60)]
        assert data(pages, "e/first/overview.json")["trials"] == 6
        for line in lines[:30]:
            assert line.recv(10) == b"", "the oldest are let go"


def test_a_client_that_does_not_read_its_answer_is_closed_with_the_server(experiment: Path, tmp_path: Path) -> None:
    """Else the collector closes the connection later, and a warning of it fails whichever test is running then."""
    trial = next(shutil.copytree(experiment, tmp_path / "first").glob("*_00000"))
    with (trial / "stdout").open("wb") as file:
        file.truncate(1 << 30)  # more than the kernel buffers
    with contextlib.ExitStack() as stack:
        with serving([trial.parent]) as server:
            line = stack.enter_context(socket.create_connection(("127.0.0.1", server.access.port), timeout=30))
            line.sendall(_head(server, "GET", f"/e/first/files/{trial.name[-14:]}/stdout").encode())
            assert line.recv(12) == b"HTTP/1.1 200"
        while line.recv(1 << 20):  # to its end
            pass


def test_fifty_streams_at_once(server: UiServer) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            page = stack.enter_context(client(server))
            assert next(stack.enter_context(stream(page, "e/first/events"))).kind == "hello"
        with client(server) as pages:
            assert data(pages, "e/first/trials.json")["seq"]


@pytest.mark.parametrize("path", ["/", "/e/first/events", "/e/first/trials.json"])
def test_a_head_has_no_body_and_ends(server: UiServer, path: str) -> None:
    answer = _answer(server, _head(server, "HEAD", path))
    assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "DELETE", "TRACE", "PATCH", "FOO"])
def test_other_methods_are_refused_with_the_token_too(server: UiServer, method: str) -> None:
    for path in ("/", "/e/first/orders", "/static/app.js"):
        assert _answer(server, _head(server, method, path)).startswith(b"HTTP/1.1 405")


@pytest.mark.parametrize(
    "path",
    [
        "/static/../../app.py",
        "/static/..%2f..%2fapp.py",
        "/e/first/files/../stdout",
        "/e/..%2ffirst/overview.json",
        "/e/first/checkpoints/x/..%2f..tar",
        "/e/first/trial/%00.json",
        "/e/first/trial/%0a.json",
        "//evil.example/",
        "/e/%ff/overview.json",
        "/e/first/files/%2e%2e/%2e%2e/stdout",
    ],
)
def test_no_address_leads_out(server: UiServer, path: str) -> None:
    assert _answer(server, _head(server, "GET", path)).startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize("given", ["Bearer ", "Bearer \xe9", "Basic abc", "Bearer x\r\nAuthorization: Bearer {}", "{}"])
def test_what_is_no_token(server: UiServer, given: str) -> None:
    own = f"Host: 127.0.0.1\r\nConnection: close\r\nAuthorization: {given.format(server.access.token)}"
    assert _answer(server, f"GET /experiments.json HTTP/1.1\r\n{own}\r\n\r\n").startswith(b"HTTP/1.1 403")
    for token in ("", "%ff%00", "%E2%82%AC"):
        head = f"GET /experiments.json?token={token} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        assert _answer(server, head).startswith(b"HTTP/1.1 403")
