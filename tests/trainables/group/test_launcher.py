"""The launcher that forks ranks off, and collects them."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.trainables.group.harness import error_of, run_group
from trainables import session
from trainables.errors import LimitError
from trainables.group.launcher import ONE_NODE, ForkLauncher, NodeRanks
from trainables.wire import Finished


def test_a_rank_that_exits_by_itself_is_named_with_its_status(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        if rank == 1:
            os._exit(7)
        session.report({})

    assert "exited with status 7" in error_of(run_group(train, tmp_path)).message


def test_sys_exit_of_every_rank_is_a_good_end_and_with_a_status_it_is_none(tmp_path: Path) -> None:
    assert run_group(lambda rank: exit(0), tmp_path / "good").end == Finished()
    assert error_of(run_group(lambda rank: exit(3), tmp_path / "bad")).type == "SystemExit"


def started(entry: Callable[[int], bool], size: int = 2, node: NodeRanks = ONE_NODE) -> ForkLauncher:
    """A launcher whose ranks have ended, and told so once."""
    launcher, told = ForkLauncher(), threading.Semaphore(0)
    launcher.start(size, entry, told.release, node)
    assert told.acquire(timeout=60)
    assert launcher.join() is None
    assert not told.acquire(blocking=False)
    return launcher


def test_each_rank_has_a_status_and_one_of_another_node_none() -> None:
    def entry(rank: int) -> bool:
        if rank == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        if rank == 7:
            raise ValueError("no")
        return rank == 4

    launcher = started(entry, 4, NodeRanks(ranks=4, first=4, number=1, nodes=2))

    assert [launcher.status(rank) for rank in range(4, 9)] == [0, 1, -signal.SIGKILL, 1, None]


def test_what_a_rank_wrote_before_its_end_is_not_lost_nor_written_twice(capfd: pytest.CaptureFixture[str]) -> None:
    def entry(rank: int) -> bool:
        sys.stdout.write(f"of {rank}\n")
        return True

    sys.stdout.write("of the launcher\n")
    started(entry)

    assert sorted(capfd.readouterr().out.splitlines()) == ["of 0", "of 1", "of the launcher"]


def test_an_error_that_nobody_caught_is_told_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    def entry(rank: int) -> bool:
        raise ValueError("of the entry")

    started(entry, 1)

    assert "ValueError: of the entry" in capfd.readouterr().err


def test_kill_ends_ranks_that_never_would_and_later_hits_nobody() -> None:
    launcher, told = ForkLauncher(), threading.Event()
    launcher.start(2, lambda rank: bool(signal.pause()), told.set, ONE_NODE)

    launcher.kill()

    assert told.wait(60)
    launcher.join()
    assert [launcher.status(rank) for rank in range(2)] == [-signal.SIGKILL] * 2
    launcher.kill()


@pytest.mark.parametrize("what", ["fork", "thread"])
def test_where_the_system_refuses_one_the_others_are_ended_and_the_limit_is_named(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    pids: list[int] = []
    fork = os.fork

    def only_two() -> int:
        if what == "fork" and len(pids) == 2:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if pid := fork():
            pids.append(pid)
        return pid

    def refuse(*_: object, **__: object) -> None:
        raise LimitError("no thread can be started")

    monkeypatch.setattr(os, "fork", only_two)
    if what == "thread":
        monkeypatch.setattr("trainables.group.launcher.start_thread", refuse)
    launcher = ForkLauncher()

    with pytest.raises(LimitError, match="for rank 2" if what == "fork" else "no thread"):
        launcher.start(3, lambda rank: bool(signal.pause()), lambda: None, ONE_NODE)

    assert len(pids) == (2 if what == "fork" else 3)
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert [launcher.status(rank) for rank in range(3)] == [None] * 3
    assert launcher.join() is None
