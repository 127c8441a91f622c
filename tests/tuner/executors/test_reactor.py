"""One wait for descriptors and other threads."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

from tuner.executors.reactor import Reactor


def test_what_other_threads_want_done_is_done_in_order_by_the_one_that_waits() -> None:
    reactor, events = Reactor(), []  # type: ignore[var-annotated]
    thread = threading.Thread(target=lambda: [reactor.call_soon(lambda found, i=i: found.append(i)) for i in range(3)])  # type: ignore[misc]
    thread.start()
    thread.join()
    reactor.wait(None, events)
    assert events == [0, 1, 2]


def test_a_wake_is_remembered_until_somebody_waits_and_no_longer() -> None:
    reactor = Reactor()
    reactor.wake()
    reactor.wait(None, [])
    reactor.wait(0.0, [])


def test_a_descriptor_is_watched_until_it_is_forgotten() -> None:
    reactor, events = Reactor(), []  # type: ignore[var-annotated]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reactor.watch(ours.fileno(), lambda found: found.append(ours.recv(1)))
        theirs.send(b"ab")
        reactor.wait(None, events)
        reactor.wait(None, events)
        assert events == [b"a", b"b"]
        reactor.forget(ours.fileno())
        reactor.forget(ours.fileno())
        theirs.send(b"c")
        reactor.wait(0.0, events)
        assert events == [b"a", b"b"]


def test_room_to_write_is_told_while_somebody_wants_it() -> None:
    reactor, told = Reactor(), []  # type: ignore[var-annotated]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reactor.when_writable(ours.fileno(), lambda: told.append("not watched"))
        reactor.watch(ours.fileno(), lambda events: None)
        reactor.when_writable(ours.fileno(), lambda: told.append("room"))
        reactor.wait(0.0, [])
        reactor.when_writable(ours.fileno(), None)
        reactor.wait(0.0, [])
        assert told == ["room"]


def test_its_descriptors_go_with_it() -> None:
    def descriptors() -> Any:
        return os.listdir("/proc/self/fd")

    before = descriptors()
    reactor = Reactor()
    assert len(descriptors()) > len(before)
    del reactor
    assert len(descriptors()) == len(before)
