"""Who connects and has no key: he is sent away in time, whatever he says and however slowly."""

from __future__ import annotations

import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

import pytest

from trainables.net.handshake import admit

KEY = b"the key"
NEVER_S = 1000.0
"""Longer than a test may take."""


def knocked(say: Callable[[socket.socket], None], within_s: float = 5.0) -> socket.socket | None:
    """What comes of one who connects and says that."""
    here, there = socket.socketpair()

    def talk() -> None:
        with there:
            try:
                say(there)
            except OSError:
                pass  # sent away meanwhile

    speaker = threading.Thread(target=talk)
    speaker.start()
    line = admit(here, KEY, knock_s=within_s, answer_s=within_s)
    speaker.join()
    return line


def answers(sock: socket.socket, key: bytes = KEY) -> None:
    with Connection(os.dup(sock.fileno())) as line:
        try:
            answer_challenge(line, key)
            deliver_challenge(line, key)
        except (AuthenticationError, EOFError):
            pass  # what he says himself


def test_who_has_the_key_gets_a_line() -> None:
    line = knocked(answers)
    assert line is not None
    line.close()


def test_who_has_another_key_is_sent_away() -> None:
    assert knocked(lambda sock: answers(sock, b"another")) is None


def test_one_who_sends_a_byte_now_and_then_is_not_waited_for_any_longer() -> None:
    def drips(sock: socket.socket) -> None:
        while True:
            sock.sendall(b"\0")
            if not sock.recv(1, socket.MSG_PEEK):
                return
            time.sleep(0.1)

    assert knocked(drips, within_s=1.0) is None


@pytest.mark.parametrize("seed", range(40))
def test_bytes_at_random_get_nobody_in(seed: int) -> None:
    rng = random.Random(seed)
    size = rng.choice((0, 1, 32, 256, 257, 1 << 31, (1 << 32) - 1, (1 << 32) - 2))
    said = size.to_bytes(4, "big") + rng.randbytes(rng.choice((0, 3, 32, 300, 70_000)))
    assert knocked(lambda sock: sock.sendall(said), within_s=0.5) is None


def test_one_who_begins_a_very_long_message_and_falls_silent_is_not_waited_for() -> None:
    def begins(sock: socket.socket) -> None:
        sock.sendall(b"\xff\xff\xff\xff")
        while sock.recv(4096):
            pass

    assert knocked(begins, within_s=NEVER_S) is None


_KNOCK = (
    "import os, socket, sys; os.setuid(61001); s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.recv(1)"
)


@pytest.mark.root
def test_another_user_of_this_machine_is_sent_away_at_once() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    name = f"test-handshake-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        stranger = subprocess.Popen([sys.executable, "-c", _KNOCK.replace("sys.argv[1]", f"chr(0) + {name!r}")])
        accepted, _ = listener.accept()
        assert admit(accepted, KEY, knock_s=NEVER_S, answer_s=NEVER_S) is None
        assert stranger.wait(10) == 0
