"""The connection between driver and agent: who has no key does not hold up the one who has."""

from __future__ import annotations

import queue
import socket
import threading

from tuner.executors.ray.line import Line, connect, open_door


def test_somebody_who_knocks_and_says_nothing_keeps_nobody_out() -> None:
    met: queue.SimpleQueue[Line] = queue.SimpleQueue()
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
    met: queue.SimpleQueue[Line] = queue.SimpleQueue()
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
