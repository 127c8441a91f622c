"""The connection between driver and agent: who has no key does not hold up the one who has."""

from __future__ import annotations

import queue
import socket

from tuner.executors.ray.line import Line, connect, open_door


def test_somebody_who_knocks_and_says_nothing_keeps_nobody_out() -> None:
    met: queue.SimpleQueue[Line] = queue.SimpleQueue()
    ip, port, key = open_door("127.0.0.1", met.put)

    with socket.create_connection((ip, port)):  # a port scanner, for one
        assert connect((ip, port, b"another key")) is None
        line = connect((ip, port, key))

    assert line is not None
    line.send(b"orders")
    other = met.get(timeout=60)
    assert other.receive() == b"orders"
    other.close()
    assert line.receive() is None


def test_a_door_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ip, port = listener.getsockname()
        assert connect((ip, port, b"key")) is None
