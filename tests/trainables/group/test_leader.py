"""A group without a framework: the leader in this process, its ranks forked off it."""

from __future__ import annotations

import os
import pickle
import signal
import time
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from tests.trainables.group.harness import error_of, files, leftovers, run_group, saved, trial_dir
from trainables import session
from trainables.checkpoint import Checkpoint
from trainables.errors import RanksError
from trainables.group.framework import Framework, GroupSpec
from trainables.group.launcher import ForkLauncher
from trainables.group.leader import Leader
from trainables.group.rank_messages import Raised
from trainables.group.remote_nodes import RankExited, RankSaid, RemoteNode
from trainables.runtime.attempt import Attempt
from trainables.testing import MemoryLink, example_job
from trainables.wire import Answer, Finished, Preempted


def test_the_metrics_of_rank_0_count_and_what_all_save_is_one_checkpoint(tmp_path: Path) -> None:
    def train(rank: int) -> int:
        for step in range(2):
            session.report({"step": step, "rank": rank}, checkpoint=saved(**{f"of_{rank}": "x", "all": str(rank)}))
        newest = session.get_checkpoint()
        assert newest is not None
        with newest.as_directory() as directory:
            assert files(Path(directory)) == {"of_0": "x", "of_1": "x", "of_2": "x", "all": "0"}
        assert session.get_context().get_metadata() == {"of": "all"}
        return rank * 10 + session.get_world_size()

    link = run_group(train, tmp_path, size=3)

    assert link.end == Finished()
    assert [(result["step"], result["rank"]) for result in link.results] == [(0, 0), (1, 0)]
    assert [ref.name for ref in link.published] == ["checkpoint_000001", "checkpoint_000002"]
    assert pickle.loads((tmp_path / "returned").read_bytes()) == [3, 13, 23]
    assert not leftovers(tmp_path)


def test_directories_of_the_same_name_are_merged_and_lent_ones_stay_as_they_are(tmp_path: Path) -> None:
    lent = tmp_path / "lent"
    for rank in range(2):
        (lent / str(rank) / "shards").mkdir(parents=True)
        (lent / str(rank) / "shards" / f"{rank}.bin").write_text(str(rank))
        (lent / str(rank) / "shards" / "index").write_text(str(rank))

    link = run_group(lambda rank: session.report({}, checkpoint=Checkpoint.from_directory(lent / str(rank))), tmp_path)

    assert files(trial_dir(tmp_path) / link.published[0].name) == {
        "shards/0.bin": "0",
        "shards/1.bin": "1",
        "shards/index": "0",
    }
    assert files(lent / "1") == {"shards/1.bin": "1", "shards/index": "1"}


def test_keep_all_ranks_keeps_each_in_its_own_directory(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        session.report({}, checkpoint=saved(model=str(rank)) if rank != 1 else None)

    link = run_group(train, tmp_path, size=3, keep_all_ranks=True)

    assert files(trial_dir(tmp_path) / link.published[0].name) == {"rank_0/model": "0", "rank_2/model": "2"}


def test_a_checkpoint_of_one_rank_alone_is_published_whichever_it_is(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        session.report({}, checkpoint=saved(only="1") if rank == 1 else None)
        with session.checkpoint_dir() as directory:
            Path(directory, f"dir_{rank}").write_text("")
        session.report({"rank": rank})

    link = run_group(train, tmp_path)

    assert [files(trial_dir(tmp_path) / ref.name) for ref in link.published] == [
        {"only": "1"},
        {"dir_0": "", "dir_1": ""},
    ]


class OfTheUser(Exception):
    pass


def test_what_a_rank_raises_is_the_trials_error_with_its_own_traceback(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        session.report({"loss": 1})
        if rank == 1:
            raise OfTheUser("wrong in the second")
        session.report({"loss": 2})

    link = run_group(train, tmp_path)

    error = error_of(link)
    assert (error.type, error.message) == ("OfTheUser", "wrong in the second")
    assert 'raise OfTheUser("wrong in the second")' in error.traceback
    assert "in rank 1 of 2" in error.traceback
    assert "group/leader.py" not in error.traceback
    assert isinstance(pickle.loads(error.pickled), OfTheUser)
    assert len(link.results) == 1
    assert not leftovers(tmp_path)


def test_a_rank_that_is_killed_is_named_with_the_signal(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        session.report({})
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        session.report({}, checkpoint=saved(model="x"))

    error = error_of(run_group(train, tmp_path))

    assert error.type == RanksError.__name__
    assert error.message.startswith("rank 1 (pid ")
    assert "was killed by signal 9 (SIGKILL)" in error.message
    assert "after 1 call of report()" in error.message
    assert not leftovers(tmp_path)


def test_what_a_killed_rank_was_saving_is_removed(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        session.report({}, checkpoint=saved(model="x"))
        with session.checkpoint_dir() as directory:
            Path(directory, "half").write_text("x")
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        session.report({})

    link = run_group(train, tmp_path)

    assert "was killed by signal 9" in error_of(link).message
    assert len(link.published) == 1
    assert not leftovers(tmp_path)


@pytest.mark.parametrize("early", [0, 1])
def test_a_rank_that_returns_while_another_reports_is_named_at_once(early: int, tmp_path: Path) -> None:
    def train(rank: int) -> None:
        session.report({})
        if rank != early:
            session.report({})

    error = error_of(run_group(train, tmp_path))

    assert f"rank {early} (pid " in error.message
    assert "returned after 1 call of report()" in error.message
    assert f"while rank {1 - early} (pid " in error.message
    assert "is in number 2" in error.message


def test_a_rank_that_does_not_come_is_named_when_the_time_is_over(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        if rank == 1:
            signal.pause()
        session.report({})

    error = error_of(run_group(train, tmp_path, timeout_s=1))

    assert error.message.startswith("rank 1 (pid ")
    assert "did not come to report() number 1 within 1 s; rank 0 (pid " in error.message
    assert error.traceback.startswith("RanksError: rank 1")  # no frames of the leader's


def test_a_rank_that_does_not_come_to_its_end_is_named_when_the_time_is_over(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        if rank == 1:
            signal.pause()

    error = error_of(run_group(train, tmp_path, timeout_s=1))

    assert error.message.startswith("rank 1 (pid ")
    assert "did not come to the end of the training function within 1 s after rank 0 (pid " in error.message


def test_the_death_of_a_rank_is_told_and_not_what_the_others_say_of_it(tmp_path: Path) -> None:
    read, write = os.pipe()

    def train(rank: int) -> None:
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        os.close(write)
        os.read(read, 1)  # until nobody has the other end: this process, and rank 1, until it is dead
        raise ConnectionError("connection closed by peer")

    # The leader holds the pipe as well: it lets go of it as soon as the ranks have been forked.
    original = ForkLauncher.start

    def start(self: ForkLauncher, *arguments: Any) -> None:
        original(self, *arguments)
        os.close(write)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ForkLauncher, "start", start)
        link = run_group(train, tmp_path)
    os.close(read)

    error = error_of(link)
    assert "was killed by signal 9" in error.message
    assert error.type == "RanksError"


def test_a_trial_that_the_driver_ends_unwinds_in_every_rank(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        try:
            while True:
                try:
                    session.report({})
                except Exception:
                    pytest.fail("an exception of this kind must not be caught by users")
        finally:
            (tmp_path / f"unwound_{rank}").touch()

    link = run_group(
        train, tmp_path, link=MemoryLink(lambda report: Answer(then="stop" if report.iteration == 3 else "continue"))
    )

    assert link.end == Finished()
    assert len(link.results) == 3
    assert {path.name for path in tmp_path.glob("unwound_*")} == {"unwound_0", "unwound_1"}


def test_a_rank_that_does_not_unwind_is_ended_when_the_grace_time_is_over(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        try:
            session.report({})
        finally:
            if rank == 1:
                signal.pause()

    link = run_group(train, tmp_path, grace_s=0.5, link=MemoryLink(lambda report: Answer(then="stop")))

    assert link.end == Finished()


def test_a_group_that_never_asks_ends_with_the_checkpoint_that_it_saves(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        while True:
            session.report({}, checkpoint=saved(model="x"))

    link = MemoryLink()
    link.halt()
    run_group(train, tmp_path, link=link)

    assert isinstance(link.end, Preempted)
    assert len(link.published) == 1


def test_ranks_end_when_the_driver_is_gone(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        while True:
            session.report({})

    link = MemoryLink()

    def answer(report: Any) -> Answer:
        if report.iteration == 2:
            link.gone = True
            raise ConnectionError("gone")
        return Answer()

    link._answer = answer
    run_group(train, tmp_path, link=link)

    assert len(link.results) == 2


def test_last_words_from_other_nodes_are_heard_while_a_cause_is_looked_for(tmp_path: Path) -> None:
    """One that raised by itself is not taken for one that died without a word."""
    leader = Leader(Attempt(example_job(tmp_path), MemoryLink(), clock=time), GroupSpec(Framework(), 2))
    ours, theirs = Pipe()
    leader._nodes.remote = [RemoteNode(1, "127.0.0.2", range(1, 2), ours)]
    theirs.send(RankSaid(1, Raised("ValueError", "no", "ValueError: no"), 0))
    theirs.send(RankExited(1, 1))

    with pytest.raises(RanksError, match="the first to fail"):
        leader._fail(leader._ranks[0], Raised("RanksError", "the first to fail", ""))

    assert leader._ranks[1].last is not None and leader._ranks[1].gone
