"""Ranks as the process that forks them sees them: met, heard, and watched until they end."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.trainables.group.harness import KEY, run_group
from trainables.group.event_loop import EventLoop
from trainables.group.launcher import ForkLauncher, NodeRanks
from trainables.group.local_ranks import LocalRanks, remove_staged
from trainables.group.rank import Rank
from trainables.group.rank_messages import Hello, Newest, Returned
from trainables.net import handshake
from trainables.store import staging
from trainables.wire import Finished


def test_no_rank_runs_before_the_leader_has_hold_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that returned at once would be gone, and its end unseen; one that connects to the launcher's store while it
    forks the next one can leave that with a lock for ever."""
    early, met, ran = [], Rank.met, tmp_path / "ran"

    def late(self: Rank, line: Any, pid: int) -> None:
        early.append(psutil.wait_procs([psutil.Process(pid)], timeout=0.3)[0] or ran.exists())
        met(self, line, pid)

    monkeypatch.setattr(Rank, "met", late)
    link = run_group(lambda rank: ran.touch(), tmp_path, size=3)

    assert link.end == Finished()
    assert early == [False] * 3


class Rooms:
    """Two ranks of a node, their loop, and what was heard of them."""

    def __init__(self) -> None:
        self.ranks = [Rank(0), Rank(1)]
        self.heard: list[tuple[int, Any]] = []
        self.died: list[tuple[int, list[Any]]] = []
        self.loop = EventLoop(time, lambda: None)
        self.loop.due_in(60)
        self.local = LocalRanks(
            self.ranks,
            ForkLauncher(),
            self.loop,
            key=KEY,
            heard=lambda rank, message: self.heard.append((rank.number, message)),
            died=lambda rank, unread: self.died.append((rank.number, unread)),
        )

    def serve_until(self, done: Callable[[], object]) -> None:
        while not done():
            assert self.local.serve(), "nothing came"

    def close(self) -> None:
        self.local.kill()
        self.local.close()
        for rank in self.ranks:
            rank.close()
        self.loop.close()


@pytest.fixture
def rooms() -> Iterator[Rooms]:
    rooms = Rooms()
    yield rooms
    rooms.close()


def hello(rooms: Rooms, rank: int) -> Connection:
    line = Connection(handshake.connect(rooms.local.address, KEY).detach())
    line.send(Hello(rank, os.getpid()))
    return line


def test_ranks_are_met_heard_and_their_last_words_come_with_their_death(rooms: Rooms) -> None:
    def entry(rank: int) -> bool:
        line = hello(rooms, rank)
        line.recv()
        line.send(Newest())
        line.recv()
        for message in (Newest(), Returned(b"x")):
            line.send(message)
        os._exit(rank)

    rooms.local.start(entry, NodeRanks(2))
    rooms.serve_until(lambda: all(rank.send for rank in rooms.ranks))
    assert sorted(number for number, message in rooms.heard if isinstance(message, Hello)) == [0, 1]
    rooms.local.complete()
    for _ in range(2):
        for rank in rooms.ranks:
            rank.answer("go on")
    rooms.serve_until(lambda: len(rooms.died) == 2)
    words = [*rooms.heard, *((number, message) for number, unread in rooms.died for message in unread)]
    for number in (0, 1):
        assert [message for of, message in words if of == number][1:] == [Newest(), Newest(), Returned(b"x")]
        assert rooms.ranks[number].gone
        assert rooms.local.status(rooms.ranks[number]) == number
    rooms.local._launcher.join()
    assert rooms.local.none_left


@pytest.mark.parametrize("said", [b"\xff" * 4, b"\0\0\0\x01x", b"GET / HTTP/1.1\r\n\r\n"])
def test_a_stranger_is_not_let_in_and_holds_nobody_up(rooms: Rooms, said: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(rooms.local.address)
        stranger.sendall(said)
        assert rooms.local.serve()
        stranger.settimeout(60)
        with contextlib.suppress(ConnectionResetError):
            while stranger.recv(4096):  # the challenge, and then the end
                pass
    assert not rooms.heard and not any(rank.send for rank in rooms.ranks)


def test_of_ranks_that_all_ended_without_a_hello_the_first_is_named_with_its_status(rooms: Rooms) -> None:
    rooms.local.start(lambda rank: os._exit(3 + rank), NodeRanks(2))
    rooms.serve_until(lambda: rooms.local.none_left)

    assert rooms.local.not_started([]) is None
    assert rooms.local.not_started(iter(rooms.ranks)) == (rooms.ranks[0], " (its process ended with 3)")


def test_what_dead_ranks_were_staging_goes_and_nothing_else(tmp_path: Path) -> None:
    for name in (f"{staging.PREFIX}1-rank0-ab", f"{staging.PREFIX}upload-rank1-cd", f"{staging.PREFIX}7-cd", "rank0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()

    remove_staged(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{staging.PREFIX}7-cd", "rank0"]
