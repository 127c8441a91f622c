"""The launcher of a further node: what happens there is told to the leader, and ends with it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import trainables as train
from tests.trainables.group.harness import leftovers, note, notes, run_nodes, saved
from trainables.errors import PublishError
from trainables.store import staging
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
