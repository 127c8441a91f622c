"""Doors: who is let in, who is heard, and when somebody is gone."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tuner.executors.base import Event, Exited, Offered
from tuner.executors.callers import CallerExecutor
from tuner.executors.callers.caller_words import (
    AskFor,
    Leaving,
    LetIn,
    MayGo,
    NoTrial,
    Offer,
    Over,
    RunOver,
    decode_at_door,
    decode_on_main,
)
from tuner.executors.callers.doors import peer_of, reachable

OPEN: list[socket.socket] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


class Visitor:
    """A caller in this process."""

    def __init__(self, executor_door: Path | None = None) -> None:
        if executor_door is None:
            self.door, self.other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        else:
            self.door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        OPEN.append(self.door)
        self.door.settimeout(10)
        if executor_door is not None:
            with reachable(executor_door) as path:
                self.door.connect(path)

    def ask(self, message: msgspec.Struct) -> socket.socket:
        """Returns main."""
        (main, theirs), (side, their_side) = socket.socketpair(), socket.socketpair()
        socket.send_fds(self.door, [msgspec.json.encode(message)], [theirs.fileno(), their_side.fileno()])
        for end in (theirs, their_side, side):
            end.close()
        main.settimeout(10)
        OPEN.append(main)
        return main

    def hears(self) -> object:
        return decode_at_door(self.door.recv(65536))


@pytest.fixture
def opener() -> Visitor:
    return Visitor()


@pytest.fixture
def executor(opener: Visitor, tmp_path: Path) -> Iterator[CallerExecutor]:
    made = CallerExecutor(lambda doors: LetIn(7), opener.other)
    made.start(None, temporary=tmp_path / ("long" * 30))
    yield made
    made.shutdown()
    made.say_over(RunOver())


def events_of(executor: CallerExecutor) -> list[Event]:
    found: list[Event] = []
    executor.run_once(found.extend, 0.0)
    return found


def test_a_path_that_is_too_long_for_a_socket_has_a_name_that_is_not(tmp_path: Path) -> None:
    directory = tmp_path / ("x" * 120)
    directory.mkdir()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with reachable(directory / "door") as path:
        listener.bind(path)
    listener.listen()
    caller = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with reachable(directory / "door") as path:
        caller.connect(path)
    assert peer_of(caller) == (os.getpid(), os.geteuid())
    listener.close()
    caller.close()


def test_who_is_let_in_hears_where_and_may_leave_while_others_stay(executor: CallerExecutor, opener: Visitor) -> None:
    assert opener.hears() == LetIn(7)
    assert not executor.deserted
    door = executor._lines.doors
    assert door is not None
    another = Visitor(door.path)
    events_of(executor)
    assert another.hears() == LetIn(7)
    another.door.send(msgspec.json.encode(Leaving()))
    events_of(executor)
    assert another.hears() == MayGo()
    opener.door.send(msgspec.json.encode(Leaving()))
    events_of(executor)
    assert executor.deserted and not executor.awaits_room()
    executor.shutdown()
    executor.say_over(RunOver(text="so it is"))
    assert opener.hears() == RunOver(text="so it is")
    with pytest.raises(OSError):
        Visitor(door.path)


def test_room_is_for_who_asks_and_who_does_not_wait_is_told_that_there_is_none(
    executor: CallerExecutor, opener: Visitor
) -> None:
    assert not executor.can_launch({})
    at_once, patient = opener.ask(AskFor()), opener.ask(AskFor(waits=True))
    events_of(executor)
    events_of(executor)
    assert executor.can_launch({}, [{}]) and not executor.can_launch({}, [{}, {}])
    executor.filled(2)
    executor.filled(0)
    assert decode_on_main(at_once.recv(1000)[4:]) == NoTrial()
    assert executor.can_launch({}) and not executor.can_launch({}, [{}])
    executor.shutdown()
    assert decode_on_main(patient.recv(1000)[4:]) == NoTrial(ends=True)


def test_an_attempt_that_is_offered_is_an_event_and_may_be_declined(executor: CallerExecutor, opener: Visitor) -> None:
    main = opener.ask(Offer("t_00001", generation=3, attempt=2, iteration=5))
    offered = Offered("t_00001", attempt=2, generation=3, iteration=5)
    assert events_of(executor) == [offered]
    executor.decline(offered, ended=True)
    assert decode_on_main(main.recv(1000)[4:]) == Over("stop")
    main = opener.ask(Offer("t_00001", generation=3, attempt=2))
    events_of(executor)
    executor.adopt(offered, iteration=4, then="continue")
    main.close()
    found: list[Event] = []
    while not found:
        found += events_of(executor)
    assert found == [Exited("t_00001", 2, -9, "lost")]
    executor.adopt(offered, iteration=4, then="continue")  # it has died before that
    assert events_of(executor) == [Exited("t_00001", 2, -9, "lost")]


def test_strangers_words_end_their_own_line_only(executor: CallerExecutor, opener: Visitor) -> None:
    door = executor._lines.doors
    assert door is not None
    stranger = Visitor(door.path)
    events_of(executor)
    stranger.hears()
    stranger.door.send(b"GET / HTTP/1.1")
    events_of(executor)
    assert stranger.door.recv(10) == b""
    assert not executor.deserted


def test_who_dies_is_gone_though_a_child_holds_its_line(executor: CallerExecutor, opener: Visitor) -> None:
    door = executor._lines.doors
    assert door is not None
    out, into = os.pipe()
    if (pid := os.fork()) == 0:
        visitor = Visitor(door.path)
        visitor.ask(AskFor(waits=True))
        if (child := os.fork()) == 0:
            signal.pause()
        os.write(into, f"{child}\n".encode())
        signal.pause()
    child = int(os.read(out, 100))
    os.close(out)
    os.close(into)
    while not executor.can_launch({}):
        executor.run_once(lambda events: None, 10)
    os.kill(pid, signal.SIGKILL)
    try:
        while executor.can_launch({}):
            executor.run_once(lambda events: None, 10)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(pid, 0)
