"""Doors for other hosts: who has the key gets in, what comes over several connections is put together."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from multiprocessing import AuthenticationError
from pathlib import Path

import pytest

from trainables.net import handshake
from trainables.net.frames import Frames, frame, framed
from trainables.net.listener import Listener
from trainables.net.silence import UNANSWERED_S
from tuner.asking.caller_door import RemoteCallerDoor
from tuner.executors.base import Event, Exited, Offered
from tuner.executors.callers import CallerExecutor
from tuner.executors.callers.caller_words import (
    AskFor,
    AtFarDoor,
    Entering,
    Handed,
    Leaving,
    LetIn,
    MayGo,
    NoTrial,
    Offer,
    RunOver,
    decode_at_door,
    decode_on_main,
)

IP = "127.0.0.1"


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[CallerExecutor]:
    opener, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made = CallerExecutor(lambda doors: LetIn(7), other, listen=IP)
    made.start(None, temporary=tmp_path)
    yield made
    made.shutdown()
    made.say_over(RunOver(text="all is done"))
    opener.close()


def listener(executor: CallerExecutor) -> Listener:
    assert executor._lines.doors is not None and executor._lines.doors.far is not None
    return executor._lines.doors.far


def events_until(executor: CallerExecutor, holds: object) -> list[Event]:
    found: list[Event] = []
    end = time.monotonic() + 30
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < end, found
        executor.run_once(found.extend, 0.05)
    return found


def entered(executor: CallerExecutor) -> RemoteCallerDoor:
    far = listener(executor)
    door = RemoteCallerDoor((far.ip, far.port), far.key)
    doors = executor._lines.doors
    assert doors is not None
    before = len(doors.open)
    events_until(executor, lambda: len(doors.open) > before)
    assert door.hear() == LetIn(7)
    return door


def test_who_has_the_key_is_let_in_asks_and_leaves(executor: CallerExecutor) -> None:
    door = entered(executor)
    main, side = door.ask(AskFor())
    events_until(executor, lambda: executor.can_launch({}))
    executor.filled(0)
    assert decode_on_main(main.recv(1000)[4:]) == NoTrial()
    door.say(Leaving())
    heard: list[object] = []
    thread = threading.Thread(target=lambda: heard.append(door.hear()))
    thread.start()
    events_until(executor, lambda: heard)
    thread.join()
    assert heard == [MayGo()]
    for each in (main, side, door):
        each.close()


def test_strangers_are_not_let_in(executor: CallerExecutor) -> None:
    far = listener(executor)
    with pytest.raises(OSError):
        RemoteCallerDoor((far.ip, far.port), b"another key")
    with pytest.raises((AuthenticationError, EOFError, OSError)):
        handshake.connect((far.ip, far.port), b"another key", within_s=10)
    with handshake.connect((far.ip, far.port), far.key, within_s=10) as sock:
        sock.sendall(framed(b"no word of ours"))
        sock.settimeout(10)
        assert sock.recv(10) == b""
    with handshake.connect((far.ip, far.port), far.key, within_s=10) as sock:
        sock.sendall(b"\xff\xff\xff\x7f")
        sock.settimeout(10)
        assert sock.recv(10) == b""
    with handshake.connect((far.ip, far.port), far.key, within_s=10) as sock:
        sock.sendall(frame(Entering("nobody's door", "main", 1)))
        ended = []
        thread = threading.Thread(target=lambda: ended.append(sock.recv(10)))
        thread.start()
        events_until(executor, lambda: ended)
        thread.join()
        assert ended == [b""]


@pytest.mark.parametrize("order", ["word main side", "side word main", "main side word"])
def test_what_comes_in_parts_is_heard_when_it_is_whole(executor: CallerExecutor, order: str) -> None:
    far = listener(executor)
    address = (far.ip, far.port)
    door = handshake.connect(address, far.key, within_s=10)
    door.sendall(frame(Entering("mine")))
    doors = executor._lines.doors
    assert doors is not None
    found = events_until(executor, lambda: len(doors.open) == 2)
    ends = []
    for part in order.split():
        assert not any(isinstance(event, Offered) for event in found)
        if part == "word":
            door.sendall(frame(AtFarDoor(1, Offer("t_00001", generation=3, attempt=2, iteration=5))))
        else:
            ends.append(handshake.connect(address, far.key, within_s=10))
            ends[-1].sendall(frame(Entering("mine", part, 1)))  # type: ignore[arg-type]
    events_until(executor, lambda: "t_00001" in executor._lines.offers)
    executor.adopt(Offered("t_00001", attempt=2, generation=3, iteration=5), iteration=5, then="continue")
    door.close()  # its process is gone, whoever holds the rest
    lost: list[Event] = []
    while not lost:
        executor.run_once(lost.extend, 0.05)
    assert [(type(event), event.trial_id) for event in lost] == [(Exited, "t_00001")]  # type: ignore[union-attr]
    for end in ends:
        end.close()


def test_the_last_word_is_heard_and_nobody_gets_in_after_it(executor: CallerExecutor) -> None:
    door = entered(executor)
    far = listener(executor)
    executor.shutdown()
    executor.say_over(RunOver(text="all is done"))
    assert door.hear() == RunOver(text="all is done")
    assert door.hear() is None
    with pytest.raises(OSError):
        door.ask(AskFor())
    with pytest.raises(OSError):
        RemoteCallerDoor((far.ip, far.port), far.key)
    door.close()


def test_words_of_a_door_are_read_back() -> None:
    for word in (LetIn(3, ["a"]), MayGo(), RunOver(b"x", "y")):
        assert decode_at_door(Frames().feed(frame(word))[0]) == word
    assert decode_on_main(Frames().feed(frame(Handed(b"job")))[0]) == Handed(b"job")
    assert UNANSWERED_S < 30  # design: a dead caller's trial is there for others within 30 s
