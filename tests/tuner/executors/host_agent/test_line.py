"""The connection between driver and agent: who has no key holds up nobody, and neither end waits for the other's."""

from __future__ import annotations

import gc
import queue
import socket
import threading
import warnings
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

import pytest

from tuner.executors.host_agent import line as lines
from tuner.executors.host_agent.line import AgentLine, connect, open_door

PATIENCE_S = 60.0
MB = 1 << 20


def both_ends() -> tuple[AgentLine, AgentLine]:
    met: queue.SimpleQueue[AgentLine] = queue.SimpleQueue()
    line = connect(open_door("127.0.0.1", met.put))
    assert line is not None
    return line, met.get(timeout=PATIENCE_S)


def read(line: AgentLine, count: int) -> list[bytes]:
    got: list[bytes] = []
    while len(got) < count:
        batches = line.receive()
        assert batches is not None, "the line has ended"
        got += batches
    return got


def test_somebody_who_knocks_and_says_nothing_keeps_nobody_out() -> None:
    met: queue.SimpleQueue[AgentLine] = queue.SimpleQueue()
    ip, port, key = open_door("127.0.0.1", met.put)

    with socket.create_connection((ip, port)):  # a port scanner, for one
        assert connect((ip, port, b"another key")) is None
        line = connect((ip, port, key))

    assert line is not None
    line.send(b"orders")
    line.send(b"more")
    other = met.get(timeout=60)
    got: list[bytes] = []
    while len(got) < 2:
        got += other.receive() or []
    assert got == [b"orders", b"more"]
    other.close()
    assert line.receive() is None


def test_a_batch_that_comes_in_parts_is_handed_out_whole() -> None:
    met: queue.SimpleQueue[AgentLine] = queue.SimpleQueue()
    line = connect(open_door("127.0.0.1", met.put))
    assert line is not None
    other, batch = met.get(timeout=60), bytes(range(256)) * 10_000

    sender = threading.Thread(target=line.send, args=(batch,))
    sender.start()
    parts = [other.receive()]
    while parts[-1] == []:  # nothing whole yet, and nobody is kept waiting for the rest
        parts.append(other.receive())
    sender.join()

    assert parts[0] == []
    assert parts[-1] == [batch]
    line.close()
    assert other.receive() is None


def test_a_door_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ip, port = listener.getsockname()
        assert connect((ip, port, b"key")) is None


def test_one_who_is_held_up_after_he_has_shown_the_key_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_CONNECT_S", PATIENCE_S)  # this machine may be slow
    hung_up: list[bool] = []

    class HeldUp(Connection):
        def send_bytes(self, buf: Any, offset: int = 0, size: int | None = None) -> None:
            if bytes(buf) == b"#WELCOME#":  # his last word: he takes the line for made when it has gone out
                hung_up.append(self.poll(2 * lines._KNOCK_S))
            super().send_bytes(buf, offset, size)

    met: queue.SimpleQueue[AgentLine] = queue.SimpleQueue()
    ip, port, key = open_door("127.0.0.1", met.put)
    with HeldUp(socket.create_connection((ip, port)).detach()) as connection:
        answer_challenge(connection, key)
        deliver_challenge(connection, key)
        assert hung_up == [False]
        met.get(timeout=PATIENCE_S).send(b"here")
        assert connection.poll(PATIENCE_S)


def test_both_ends_may_send_more_than_fits_before_either_reads() -> None:
    line, other = both_ends()
    batches = [b"a" * 32 * MB, b"then", b"b" * MB, b"the last word"]
    senders = [
        threading.Thread(target=lambda end=end: [end.send(batch) for batch in batches], daemon=True)  # type: ignore[misc]
        for end in (line, other)
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join(PATIENCE_S)
        assert not sender.is_alive(), "both wait for the other to read"

    assert read(line, len(batches)) == read(other, len(batches)) == batches
    line.send(b"and")
    assert read(other, 1) == [b"and"]
    line.close()
    assert other.receive() is None


def test_who_waits_for_room_is_held_up_until_the_other_end_reads_or_somebody_is_in_a_hurry() -> None:
    line, other = both_ends()
    line.wait_for_room()  # there is

    def held_up() -> threading.Thread:
        for _ in range(2):
            line.send(bytes(32 * MB))
        waits = threading.Thread(target=line.wait_for_room, daemon=True)
        waits.start()
        waits.join(0.2)
        assert waits.is_alive()
        return waits

    waits = held_up()
    assert len(read(other, 2)) == 2
    waits.join(PATIENCE_S)
    assert not waits.is_alive()

    waits = held_up()
    line.hurry()
    waits.join(PATIENCE_S)
    assert not waits.is_alive()
    assert len(read(other, 2)) == 2  # it goes out all the same


def test_a_line_that_ends_with_much_unsent_holds_up_nobody() -> None:
    line, other = both_ends()
    for _ in range(2):
        line.send(bytes(32 * MB))
    waits = threading.Thread(target=line.wait_for_room, daemon=True)
    waits.start()
    other.send(b"the last word")
    other.close()
    waits.join(PATIENCE_S)
    assert not waits.is_alive()
    assert read(line, 1) == [b"the last word"]
    assert line.receive() is None
    with pytest.raises(OSError):
        line.send(b"more")


def test_in_a_cycle_of_garbage_it_closes_its_socket() -> None:
    here, there = socket.socketpair()
    line: Any = AgentLine(here)
    line.holds = line
    del here, line
    with there, warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()
        assert there.recv(1) == b""
