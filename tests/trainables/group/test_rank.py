"""One rank as its leader sees it: real processes and pipes, and the words about them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from pathlib import Path

import pytest

from trainables.errors import RanksError
from trainables.group.rank import Rank, names, times
from trainables.group.rank_messages import Held, Newest, Raised, RankReport, Returned
from trainables.store.delete import pins


@contextmanager
def process(end: Callable[[], object]) -> Iterator[int]:
    """A child that does `end` and exits with 0; collected at last, whoever has killed it."""
    pid = os.fork()
    if not pid:
        try:
            end()
        finally:
            os._exit(0)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def wait_until_dead(pid: int) -> None:
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def met(pid: int, number: int = 1) -> Rank:
    rank = Rank(number)
    rank.met(Pipe()[0], pid)
    return rank


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (lambda: os._exit(0), 0),
        (lambda: os._exit(7), 7),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), -signal.SIGKILL),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), -signal.SIGTERM),
    ],
)
def test_a_status_is_read_and_left_for_who_collects_the_process(end: Callable[[], object], status: int) -> None:
    with process(end) as pid:
        rank = met(pid)
        wait_until_dead(pid)

        assert [rank.status(), rank.status()] == [status, status]
        rank.close()


def test_one_that_runs_has_no_status_and_one_that_was_collected_has_none_any_more() -> None:
    with process(signal.pause) as pid:
        rank = met(pid)
        assert rank.status() is None
        rank.kill()
        wait_until_dead(pid)
        assert rank.status() == -signal.SIGKILL
    assert rank.status() is None
    rank.kill()  # nobody is hit: the descriptor names that process only
    rank.close()


def test_one_that_ended_before_anybody_had_hold_of_it_is_an_error() -> None:
    with process(lambda: None) as pid:
        pass

    with pytest.raises(RanksError, match=rf"rank 4 \(pid {pid}\) ended right after its start"):
        met(pid, 4)


def test_what_a_dead_process_said_is_heard_also_where_its_end_is_still_open() -> None:
    ours, theirs = Pipe()
    rank = Rank(0, line=ours)
    said = [Newest(), RankReport({"loss": 1}), Returned(b"x")]
    for message in said:
        theirs.send(message)

    assert list(rank.unread()) == said
    theirs.send(Newest())
    theirs.send(Raised("ValueError", "no", ""))
    theirs.close()
    assert rank.last_word() == Raised("ValueError", "no", "")
    assert rank.last_word() is None
    assert Rank(1).last_word() is None


def test_an_answer_to_one_that_is_dead_is_no_error() -> None:
    ours, theirs = Pipe()
    rank = Rank(0, send=ours.send, line=ours)
    rank.answer("to the living")
    assert theirs.recv() == "to the living"
    theirs.close()

    rank.answer("to the dead")


def test_what_it_reads_is_held_until_it_lets_go_or_is_closed(tmp_path: Path) -> None:
    rank = Rank(0)
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        rank.hold(Held(path, True))
        rank.hold(Held(path, True))  # said twice, held once

    rank.hold(Held(paths[0], False))
    assert [path in pins.paths() for path in paths] == [False, True]
    rank.hold(Held(paths[0], False))
    rank.close()
    assert not set(paths) & set(pins.paths())


def test_where_and_how_it_ended_is_said_in_words() -> None:
    rank = Rank(3, pid=17)
    assert rank.how_it_died(None) == "rank 3 (pid 17) ended without a word, after 0 calls of report()"
    rank.reports = 1
    assert rank.whereabouts() == "rank 3 (pid 17) runs after 1 call of report()"
    assert rank.how_it_died(2) == "rank 3 (pid 17) exited with status 2, after 1 call of report()"
    rank.report, rank.where = RankReport({}), "10.0.0.2"
    assert rank.whereabouts() == "rank 3 (pid 17 on 10.0.0.2) waits in report() number 1"
    assert rank.how_it_died(-15) == (
        "rank 3 (pid 17 on 10.0.0.2) was killed by signal 15 (SIGTERM), in call number 1 of report()"
    )
    assert rank.how_it_died(-9).endswith("was killed by signal 9 (SIGKILL), in call number 1 of report(); was the "
        "machine out of memory?")  # fmt: skip


@pytest.mark.parametrize("number", [1, 34, 35, 63, 64])
def test_every_signal_can_be_said(number: int) -> None:
    assert f"was killed by signal {int(number)}" in Rank(0).how_it_died(-number)


def test_several_are_named_one_after_the_other() -> None:
    assert names([Rank(0), Rank(2, pid=5)]) == "rank 0, rank 2 (pid 5)"
    assert names([]) == ""
    assert [times(count) for count in (0, 1, 2)] == ["0 calls", "1 call", "2 calls"]
