"""A port that is open to who has the key: strangers hold up nobody, and what nobody owns is closed."""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterator
from multiprocessing import AuthenticationError

import pytest

from trainables.net import handshake, listener
from trainables.net.listener import Listener, family_of

Came = queue.SimpleQueue[tuple[socket.socket, str]]


@pytest.fixture
def came() -> Came:
    return queue.SimpleQueue()


@pytest.fixture(params=["127.0.0.1", "::1"])
def opened(request: pytest.FixtureRequest, came: Came) -> Iterator[Listener]:
    made = Listener(request.param, lambda sock, ip: came.put((sock, ip)))
    yield made
    made.close()


def test_who_has_the_key_comes_with_the_address_behind_him(opened: Listener, came: Came) -> None:
    with handshake.connect((opened.ip, opened.port), opened.key, within_s=10) as mine:
        theirs, ip = came.get(timeout=30)
        with theirs:
            assert ip == opened.ip
            assert theirs.gettimeout() == listener.STEP_S
            assert theirs.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert theirs.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 20_000
            mine.sendall(b"hello")
            assert theirs.recv(10) == b"hello"


def test_a_stranger_is_cut_off_and_one_who_says_nothing_holds_up_nobody(opened: Listener, came: Came) -> None:
    with socket.create_connection((opened.ip, opened.port)):
        with pytest.raises((AuthenticationError, EOFError, OSError)):
            handshake.connect((opened.ip, opened.port), b"another key", within_s=10)
        with handshake.connect((opened.ip, opened.port), opened.key, within_s=10):
            came.get(timeout=30)[0].close()
    assert came.empty()


def test_what_whoever_hears_it_does_not_want_is_closed() -> None:
    def refuse(sock: socket.socket, ip: str) -> None:
        raise ConnectionError("none of ours")

    opened = Listener("127.0.0.1", refuse)
    with handshake.connect(("127.0.0.1", opened.port), opened.key, within_s=10) as mine:
        mine.settimeout(30)
        assert mine.recv(1) == b""
    opened.close()


def test_nobody_comes_when_it_is_closed_and_closing_twice_is_no_error(opened: Listener) -> None:
    opened.close()
    opened.close()
    with pytest.raises(OSError):
        handshake.connect((opened.ip, opened.port), opened.key, within_s=10)


def test_an_address_that_this_host_has_not_is_an_error() -> None:
    with pytest.raises(OSError):
        Listener("192.0.2.1", lambda sock, ip: None)
    assert (family_of("10.0.0.1"), family_of("fe80::1")) == (socket.AF_INET, socket.AF_INET6)
