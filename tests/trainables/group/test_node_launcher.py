"""The launcher of a further node: what happens there is told to the leader, and ends with it."""

from __future__ import annotations

import os
import signal
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import pytest

import trainables as train
from tests.trainables.group.harness import ADDRESSES, KEY, leftovers, note, notes, run_nodes, saved
from trainables.errors import PublishError
from trainables.group.framework import Framework, GroupSpec
from trainables.group.launcher import NodeRanks
from trainables.group.node_launcher import NodeLauncher
from trainables.group.rank_messages import Go, Hello, RankReport, Returned, Welcome
from trainables.group.remote_nodes import (
    FlagsSeen,
    Leave,
    NodeJoined,
    Noticed,
    RankExited,
    RankSaid,
    StartRanks,
    ToRank,
)
from trainables.job import GroupNodes
from trainables.net import handshake
from trainables.store import staging
from trainables.testing import example_job
from trainables.wire import AttemptErrored, SaveFailed


def fail_in_rank(config: dict[str, Any]) -> None:
    context = train.get_context()
    train.report({"i": 1})
    if context.get_world_rank() == 2:
        if config["how"] == "raise":
            raise ValueError("wrong over there")
        if config["how"] == "full":

            def full(*_: Any) -> Path:
                raise PublishError(28, "no room")

            staging.hand_over = full
        elif config["how"] == "launcher":
            os.kill(os.getppid(), signal.SIGKILL)
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    train.report({"i": 2}, checkpoint=saved(model="x"))


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        ("raise", "ValueError", "wrong over there"),
        ("kill", "RanksError", "on 127.0.0.2) was killed by signal 9"),
        ("launcher", "RanksError", "node 127.0.0.2 was lost, and with it ranks 1 to 2"),
        ("full", "PublishError", "no room"),
    ],
)
def test_what_goes_wrong_on_another_node_ends_the_whole_group(tmp_path: Path, how: str, kind: str, text: str) -> None:
    config = {"train_loop_config": {"root": str(tmp_path), "how": how}}
    before = psutil.Process().children(recursive=True)

    link = run_nodes(fail_in_rank, tmp_path, config=config, max_publish_failures=1)

    assert isinstance(link.end, AttemptErrored)
    assert (link.end.type, text in link.end.message) == (kind, True), link.end.message
    assert link.ended() == [-9 if how == "launcher" else 0]
    assert len(link.results) == (2 if how == "full" else 1)
    assert bool(link.of(SaveFailed)) == (how == "full")
    if how != "launcher":  # what it leaves is ended by its keeper
        new = [child for child in psutil.Process().children(recursive=True) if child not in before]
        assert not [child for child in new if child.status() != "zombie"]
        assert not leftovers(tmp_path)


def wait_for_ever(config: dict[str, Any]) -> None:
    note(config, pid=os.getpid(), parent=os.getppid())
    train.report({})
    signal.pause()


def test_a_leader_that_is_killed_takes_the_ranks_of_the_other_nodes_along(tmp_path: Path) -> None:
    read, write = os.pipe()  # each process holds its end
    leader = os.fork()
    if not leader:
        run_nodes(wait_for_ever, tmp_path)
        os._exit(0)
    os.close(write)
    end = time.monotonic() + 60
    while len(list(tmp_path.glob("rank?"))) < 3 or not all(path.stat().st_size for path in tmp_path.glob("rank?")):
        assert time.monotonic() < end
        time.sleep(0.01)
    here, *there = notes(tmp_path)

    os.kill(leader, signal.SIGKILL)
    os.waitpid(leader, 0)
    os.kill(here["pid"], signal.SIGKILL)  # its keeper's business otherwise

    assert {each["parent"] for each in there} != {leader}
    assert not os.read(read, 1)  # returns when nobody holds the other end
    os.close(read)
    assert not leftovers(tmp_path / "node1")


# --- a launcher, and a leader that says what it likes -------------------------------------------------------


class Leads:
    """The leader's end of one further node, whose launcher runs in a process of its own."""

    def __init__(self, root: Path, function: Any) -> None:
        self.root, self.listener = root, socket.create_server(("127.0.0.1", 0))
        nodes = GroupNodes(((ADDRESSES[0], 1), (ADDRESSES[0], 2)), 1, KEY, self.listener.getsockname()[1])
        job = example_job(root, group_nodes=nodes, checkpoint_path=None)
        self.directory = job.directory
        self.pid = os.fork()
        if not self.pid:
            self.listener.close()
            try:
                NodeLauncher(job, GroupSpec(Framework(), 3)).run(function)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        accepted, _ = self.listener.accept()
        sock = handshake.admit(accepted, KEY, knock_s=10, answer_s=10)
        assert sock is not None
        self.line = Connection(sock.detach())

    def begin(self) -> None:
        assert self.line.recv() == NodeJoined(1)
        node = NodeRanks(2, 1, 1, nodes=2, address=ADDRESSES[0])
        self.line.send(StartRanks(node, next_save=1, probe=".staging-none-rank", start=None))

    def hear(self, *kinds: type) -> list[Any]:
        """What is said, until one of each of these has been."""
        said: list[Any] = []
        while not all(any(isinstance(each, kind) for each in said) for kind in kinds):
            assert self.line.poll(60)
            said.append(self.line.recv())
        return said

    def ranks_said(self, kind: type, count: int = 2) -> list[tuple[int, Any]]:
        found: list[tuple[int, Any]] = []
        while len(found) < count:
            assert self.line.poll(60)
            message = self.line.recv()
            if isinstance(message, RankSaid) and isinstance(message.message, kind):
                found.append((message.rank, message.message))
        return sorted(found, key=lambda each: each[0])

    def ended(self) -> int:
        self.line.close()
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)


@pytest.fixture
def leads(tmp_path: Path) -> Iterator[Callable[[Any], Leads]]:
    made: list[Leads] = []

    def make(function: Any) -> Leads:
        made.append(Leads(tmp_path, function))
        return made[-1]

    yield make
    for each in made:
        each.listener.close()
        if each.pid:
            os.kill(each.pid, signal.SIGKILL)
            os.waitpid(each.pid, 0)


def test_ranks_are_numbered_after_those_before_and_all_they_say_is_passed_on(leads: Callable[[Any], Leads]) -> None:
    leader = leads(lambda: train.report({"rank": train.world_rank()}))
    leader.begin()

    assert [rank for rank, _ in leader.ranks_said(Hello)] == [1, 2]
    for rank in (1, 2):
        leader.line.send(ToRank(rank, Welcome()))
    assert [said.metrics for _, said in leader.ranks_said(RankReport)] == [{"rank": 1}, {"rank": 2}]
    for rank in (1, 2):
        leader.line.send(ToRank(rank, Go(next_save=1)))
    said = []
    while sum(isinstance(each, RankExited) for each in said) < 2:
        said.append(leader.line.recv())
    for rank in (1, 2):
        words = [each for each in said if each.rank == rank]
        assert [type(each) for each in words] == [RankSaid, RankExited], "its last word comes before its end"
        assert isinstance(words[0].message, Returned) and words[1].status in (0, None)
    assert leader.ended() == 0


def test_told_to_leave_it_says_how_far_each_rank_has_looked(leads: Callable[[Any], Leads]) -> None:
    leader = leads(lambda: train.get_context().should_stop() or signal.pause())
    leader.begin()
    leader.ranks_said(Hello)

    leader.line.send(Leave())

    *_, seen = leader.hear(FlagsSeen)
    assert set(seen.at) == {1, 2}
    assert leader.ended() == 0


def test_a_rank_that_dies_is_told_with_its_status(leads: Callable[[Any], Leads]) -> None:
    leader = leads(lambda: os.kill(os.getpid(), signal.SIGKILL) if train.world_rank() == 2 else signal.pause())
    leader.begin()
    leader.ranks_said(Hello)
    for rank in (1, 2):
        leader.line.send(ToRank(rank, Welcome()))

    *_, exited = leader.hear(RankExited)
    assert exited == RankExited(2, -signal.SIGKILL)
    assert leader.ended() == 0


def test_a_leader_that_goes_before_anything_began_leaves_nobody(leads: Callable[[Any], Leads]) -> None:
    leader = leads(lambda: None)

    assert leader.ended() == 0
    assert list(leader.directory.iterdir()) == []


def test_a_notice_to_that_process_is_passed_on(leads: Callable[[Any], Leads]) -> None:
    leader = leads(lambda: signal.pause())
    leader.begin()
    leader.ranks_said(Hello)

    os.kill(leader.pid, signal.SIGUSR1)

    leader.hear(Noticed)
    assert leader.ended() == 0
