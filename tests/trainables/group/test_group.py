"""A group without a framework: the leader in this process, its ranks forked off it.

Covers leader, results, local_ranks, launcher, rank, rank_messages, rank_session and rank_uploads of trainables/group.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pytest

from trainables import session
from trainables.checkpoint import Checkpoint
from trainables.errors import PublishError, RanksError
from trainables.group import rank_uploads
from trainables.group.framework import Framework, GroupSpec
from trainables.group.launcher import ForkLauncher
from trainables.group.leader import Leader
from trainables.group.rank import Rank
from trainables.job import Replicated
from trainables.runtime.attempt import Attempt
from trainables.store import fs, manifest, staging
from trainables.testing import MemoryLink, run_trial
from trainables.wire import Answer, AttemptErrored, Finished, Preempted, SaveFailed, SaveUploaded

RankFunction = Callable[[int], Any]


def run_group(
    function: RankFunction,
    root: Path,
    *,
    size: int = 2,
    timeout_s: float = 100,
    link: MemoryLink | None = None,
    **job: Any,
) -> MemoryLink:
    """Run `function(rank)` in every rank of a group, under a driver in memory."""

    def train(config: dict[str, Any]) -> None:
        attempt = session.current()
        assert isinstance(attempt, Attempt)
        backend = Framework()
        backend.timeout_s = timeout_s
        leader = Leader(attempt, GroupSpec(backend, size, metadata={"of": "all"}))
        returned = leader.run(lambda: function(session.get_world_rank()))
        (root / "returned").write_bytes(pickle.dumps(returned))

    return run_trial(train, root, link=link, **job)


def trial_dir(root: Path) -> Path:
    return root / "train_t1"


def files(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): path.read_text()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != ".manifest.json"
    }


def saved(rank: int, **names: str) -> Checkpoint:
    """A checkpoint of small files, handed over."""
    directory = Path(tempfile.mkdtemp())
    for name, text in names.items():
        (directory / name).write_text(text)
    return Checkpoint.from_directory(directory, move=True)


def error_of(link: MemoryLink) -> AttemptErrored:
    assert isinstance(link.end, AttemptErrored), link.end
    return link.end


def leftovers(root: Path) -> list[Path]:
    return [*trial_dir(root).glob(f"{staging.PREFIX}*"), *(root / ".tmp").glob("group-*")]


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


# --- copies elsewhere -----------------------------------------------------------------------------------


def replicated(root: Path, text: str = "this run") -> Replicated:
    place = root / "copies"
    (place / "e").mkdir(parents=True)
    (place / "e" / "owner").write_text("of this run")
    return Replicated(cloudpickle.dumps({"place": str(place)}), "e/t", ("e/owner", text), "e/next", timeout_s=100)


def test_each_rank_brings_to_the_replica_what_of_the_checkpoint_is_its_own(tmp_path: Path) -> None:
    for case, keep in (("merged", False), ("kept", True)):
        root = tmp_path / case

        def save(rank: int, reserved: bool = not keep) -> None:
            with session.checkpoint_dir() as directory:
                Path(directory, "deep").mkdir()
                for name in ("all", "deep/all", f"deep/of_{rank}", *([".manifest.json"] if reserved else [])):
                    Path(directory, name).write_text(str(rank))
            session.report({})

        link = run_group(save, root, replicated=replicated(root), keep_all_ranks=keep)

        assert link.end == Finished()
        there = root / "copies" / "e" / "t" / "checkpoint_000001"
        (uploaded,) = link.of(SaveUploaded)
        assert uploaded.ref.name == there.name and not uploaded.problem
        assert not leftovers(root)
        if keep:
            assert link.published
            published = manifest.read(trial_dir(root) / there.name).manifest
            assert uploaded.sent == {entry.name: entry.blake3 for entry in published.files}
            assert sorted(path.name for path in there.iterdir()) == ["rank_0", "rank_1"]
        else:  # that name is reserved, and a checkpoint with it is not published: nor may it seem to be complete there
            assert not link.published
            assert files(there) == {"all": "0", "deep/all": "0", "deep/of_0": "0", "deep/of_1": "1"}
            assert not (there / ".manifest.json").exists()


def test_where_the_place_is_another_one_or_has_another_owner_nothing_is_brought(tmp_path: Path) -> None:
    def save(rank: int) -> None:
        session.report({}, checkpoint=saved(rank, **{f"of_{rank}": "x"}))

    for case in ("another", "taken"):
        root = tmp_path / case
        place = replicated(root, "that run" if case == "another" else "this run")
        if case == "taken":
            (root / "copies" / "e" / "next").touch()
        link = run_group(save, root, replicated=place)

        assert link.end == Finished() and link.published
        (uploaded,) = link.of(SaveUploaded)
        assert uploaded.sent == {}
        wanted = "is another place here" if case == "another" else "was written by another driver"
        assert uploaded.problem.count(wanted) == 2
        assert sorted(path.name for path in (root / "copies" / "e").iterdir()) == (
            ["owner"] if case == "another" else ["next", "owner"]
        )


def test_what_a_rank_could_not_keep_until_it_is_sent_is_told_of_where_the_checkpoint_is_saved_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = fs.mkdir

    def full(path: fs.PathLike, mode: int = 0o777) -> None:
        if "upload-rank1" in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        make(path, mode)

    monkeypatch.setattr(fs, "mkdir", full)
    link = run_group(
        lambda rank: session.report({}, checkpoint=saved(rank, **{f"of_{rank}": "x"})),
        tmp_path,
        replicated=replicated(tmp_path),
    )

    assert link.end == Finished() and link.published
    (uploaded,) = link.of(SaveUploaded)
    assert list(uploaded.sent) == ["of_0"]
    assert uploaded.problem.startswith("rank 1 ") and os.strerror(errno.ENOSPC) in uploaded.problem


def hangs(source: str, target: str) -> None:
    """Copies; a checkpoint for ever."""
    if "checkpoint_" in target:
        Path(target).parents[2].joinpath(f"begun-{os.getpid()}").touch()
        threading.Event().wait()
    shutil.copytree(source, target, dirs_exist_ok=True)


@pytest.mark.parametrize("how", ["given up", "cannot begin", "told to leave"])
def test_a_rank_that_has_returned_does_not_wait_for_a_place_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    place = replace(
        replicated(tmp_path), arguments=cloudpickle.dumps({"place": str(tmp_path / "copies"), "syncer": hangs})
    )
    monkeypatch.setattr(rank_uploads, "_PARTING_S", 1000.0 if how == "told to leave" else 0.5)
    monkeypatch.setattr(rank_uploads, "_END_S", 1000.0 if how == "given up" else 0.5)
    if how == "cannot begin":
        monkeypatch.setattr(rank_uploads, "ProcessClient", lambda *_, **__: threading.Event().wait())
    link = MemoryLink()

    def leave() -> None:
        while not list((tmp_path / "copies").glob("begun-*")):
            time.sleep(0.02)
        link.halt()

    watcher = threading.Thread(target=leave)
    if how == "told to leave":
        watcher.start()
    run_group(
        lambda rank: session.report({}, checkpoint=saved(rank, **{f"of_{rank}": "x"})),
        tmp_path,
        link=link,
        replicated=place,
    )

    assert link.end == Finished() and link.published
    assert [message.sent for message in link.of(SaveUploaded)] == ([] if how == "told to leave" else [{}])
    assert not list(trial_dir(tmp_path).glob("*-rank*"))
    for begun in (tmp_path / "copies").glob("begun-*"):
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(int(begun.name.partition("-")[2])).wait(60)
    if how == "told to leave":
        watcher.join()


# --- results and checkpoints -----------------------------------------------------------------------------


def test_the_metrics_of_rank_0_count_and_what_all_save_is_one_checkpoint(tmp_path: Path) -> None:
    def train(rank: int) -> int:
        for step in range(2):
            session.report(
                {"step": step, "rank": rank}, checkpoint=saved(rank, **{f"of_{rank}": "x", "all": str(rank)})
            )
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
        session.report({}, checkpoint=saved(rank, model=str(rank)) if rank != 1 else None)

    link = run_group(train, tmp_path, size=3, keep_all_ranks=True)

    assert files(trial_dir(tmp_path) / link.published[0].name) == {"rank_0/model": "0", "rank_2/model": "2"}


def test_a_checkpoint_of_one_rank_alone_is_published_whichever_it_is(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        session.report({}, checkpoint=saved(rank, only="1") if rank == 1 else None)
        with session.checkpoint_dir() as directory:
            Path(directory, f"dir_{rank}").write_text("")
        session.report({"rank": rank})

    link = run_group(train, tmp_path)

    assert [files(trial_dir(tmp_path) / ref.name) for ref in link.published] == [
        {"only": "1"},
        {"dir_0": "", "dir_1": ""},
    ]


def test_a_dict_checkpoint_is_numbered_and_a_restored_one_gives_its_number_to_the_first_save(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        for epoch in range(2):
            session.report({}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))

    link = run_group(train, tmp_path)
    last = trial_dir(tmp_path) / link.published[-1].name
    found = Checkpoint(last).to_dict()
    stamp = found.pop("_timestamp")
    assert found == {"epoch": 1, "_preprocessor": None, "_current_checkpoint_id": 1}
    assert isinstance(stamp, int)

    anew = tmp_path / "anew"
    link = run_group(train, anew, checkpoint_path=last)
    numbers = [Checkpoint(trial_dir(anew) / ref.name).to_dict()["_current_checkpoint_id"] for ref in link.published]
    assert numbers == [1, 2]

    again = tmp_path / "again"
    link = run_group(train, again, checkpoint_path=last, checkpoint=link.published[0])
    numbers = [Checkpoint(trial_dir(again) / ref.name).to_dict()["_current_checkpoint_id"] for ref in link.published]
    assert numbers == [2, 3]  # its own: the count goes on


def test_a_save_that_one_rank_cannot_write_is_no_save_and_fails_the_trial_only_when_it_goes_on(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        if rank == 1:

            def full(*_: Any) -> Path:
                raise PublishError(28, "no room")

            staging.hand_over = full
        for _ in range(2):
            session.report({}, checkpoint=saved(rank, model=str(rank)))

    link = run_group(train, tmp_path, max_publish_failures=2)

    assert [failed.ref.iteration for failed in link.of(SaveFailed)] == [1, 2]
    assert error_of(link).type == "PublishError"
    assert "no room" in error_of(link).message
    assert error_of(link).disk
    assert not link.published
    assert not leftovers(tmp_path)


def test_ranks_draw_different_numbers_and_the_same_ones_again(tmp_path: Path) -> None:
    import random

    def drawn(root: Path) -> list[float]:
        run_group(lambda rank: random.random(), root, seed=5)
        values = pickle.loads((root / "returned").read_bytes())
        return list(values)

    first = drawn(tmp_path / "a")

    assert first[0] != first[1]
    assert drawn(tmp_path / "b") == first


# --- a rank that fails, dies, or disagrees ---------------------------------------------------------------


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
    assert "leader.py" not in error.traceback
    assert isinstance(pickle.loads(error.pickled), OfTheUser)
    assert len(link.results) == 1
    assert not leftovers(tmp_path)


def test_an_exception_that_cannot_be_pickled_keeps_its_text(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        error = ValueError("has a lock")
        error.lock = threading.Lock()  # type: ignore[attr-defined]
        raise error

    error = error_of(run_group(train, tmp_path, size=1))

    assert error.message == "ValueError: has a lock"
    assert "in rank 0 of 1" in error.traceback


def test_a_rank_that_is_killed_is_named_with_the_signal(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        session.report({})
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        session.report({}, checkpoint=saved(rank, model="x"))

    error = error_of(run_group(train, tmp_path))

    assert error.type == RanksError.__name__
    assert error.message.startswith("rank 1 (pid ")
    assert "was killed by signal 9 (SIGKILL)" in error.message
    assert "after 1 call of report()" in error.message
    assert not leftovers(tmp_path)


def test_what_a_killed_rank_was_saving_is_removed(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        session.report({}, checkpoint=saved(rank, model="x"))
        with session.checkpoint_dir() as directory:
            Path(directory, "half").write_text("x")
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        session.report({})

    link = run_group(train, tmp_path)

    assert "was killed by signal 9" in error_of(link).message
    assert len(link.published) == 1
    assert not leftovers(tmp_path)


def test_a_rank_that_exits_by_itself_is_named_with_its_status(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        if rank == 1:
            os._exit(7)
        session.report({})

    assert "exited with status 7" in error_of(run_group(train, tmp_path)).message


def test_sys_exit_of_every_rank_is_a_good_end_and_with_a_status_it_is_none(tmp_path: Path) -> None:
    assert run_group(lambda rank: exit(0), tmp_path / "good").end == Finished()
    assert error_of(run_group(lambda rank: exit(3), tmp_path / "bad")).type == "SystemExit"


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


def test_a_report_that_cannot_be_written_fails_in_the_users_line(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        session.report({"bad": object()})

    error = error_of(run_group(train, tmp_path))

    assert error.type == "MetricError"
    assert 'session.report({"bad": object()})' in error.traceback


def test_a_save_beyond_the_budget_is_refused_at_every_rank(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        session.report({}, checkpoint=saved(rank, model="x" * 100))

    link = run_group(train, tmp_path, link=MemoryLink(lambda report: Answer(budget_error="too large")))

    assert error_of(link).type == "CheckpointBudgetError"
    assert not error_of(link).retry
    assert not leftovers(tmp_path)


# --- leaving ---------------------------------------------------------------------------------------------


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


def test_should_stop_is_true_from_the_same_call_on_at_every_rank(tmp_path: Path) -> None:
    def train(rank: int) -> int:
        context = session.get_context()
        session.report({})
        calls = 1
        while not context.should_stop():
            calls += 1
            if rank == 0 and calls == 50:
                (tmp_path / "running").touch()
            if rank == 1 and calls % 7 == 0:
                os.sched_yield()
        assert context.should_stop()
        session.report({}, checkpoint=saved(rank, model="x"))
        return calls

    link = MemoryLink()

    def halt_in_the_middle() -> None:
        waiting = threading.Event()
        while not (tmp_path / "running").exists():
            waiting.wait(0.005)
        link.halt()

    watcher = threading.Thread(target=halt_in_the_middle)
    original = ForkLauncher.start

    def start(self: ForkLauncher, *arguments: Any) -> None:
        original(self, *arguments)
        watcher.start()  # after the fork

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ForkLauncher, "start", start)
        run_group(train, tmp_path, link=link)
    watcher.join()

    first, second = pickle.loads((tmp_path / "returned").read_bytes())
    assert first == second >= 50
    assert isinstance(link.end, Preempted)
    assert len(link.published) == 1


def test_f36_a_rank_that_looked_before_the_notice_and_waits_for_the_others_holds_nobody_up(tmp_path: Path) -> None:
    """As one does in a collective call, or in report(): it looks again only when the others have come."""

    def until(condition: Any) -> None:
        waiting = threading.Event()
        while not condition():
            waiting.wait(0.005)

    def train(rank: int) -> int:
        member: Any = session.current()
        for step in range(1, 9):
            if (rank, step) == (0, 3):
                until(lambda: member.flags.leaving)
            stop = session.get_context().should_stop()
            if step == 3:
                Path(tmp_path, f"looked_{rank}").touch()
                until(Path(tmp_path, "looked_0").exists)
            session.report({}, checkpoint=saved(rank, model="x") if stop else None)
            if stop:
                return step
        raise AssertionError("nobody told it to stop")

    link = MemoryLink()

    def halt_when_rank_1_has_looked() -> None:
        until(Path(tmp_path, "looked_1").exists)
        link.halt()

    watcher = threading.Thread(target=halt_when_rank_1_has_looked)
    original = ForkLauncher.start

    def start(self: ForkLauncher, *arguments: Any) -> None:
        original(self, *arguments)
        watcher.start()  # after the fork

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ForkLauncher, "start", start)
        run_group(train, tmp_path, link=link)
    watcher.join()

    assert pickle.loads((tmp_path / "returned").read_bytes()) == [4, 4]
    assert isinstance(link.end, Preempted)
    assert len(link.published) == 1


def test_one_rank_may_ask_alone_and_tell_the_others(tmp_path: Path) -> None:
    told = tmp_path / "told"

    def train(rank: int) -> None:
        if rank == 0:
            while not session.get_context().should_stop():
                os.sched_yield()
            told.touch()
        session.report({})

    link = MemoryLink()
    link.halt()
    run_group(train, tmp_path, link=link)

    assert told.exists()
    assert isinstance(link.end, Preempted)


def test_a_group_that_never_asks_ends_with_the_checkpoint_that_it_saves(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        while True:
            session.report({}, checkpoint=saved(rank, model="x"))

    link = MemoryLink()
    link.halt()
    run_group(train, tmp_path, link=link)

    assert isinstance(link.end, Preempted)
    assert len(link.published) == 1


def test_what_is_asked_of_a_trial_is_seen_by_its_ranks(tmp_path: Path) -> None:
    def train(rank: int) -> list[bool]:
        seen = []
        for _ in range(2):
            session.report({})
            seen.append(session.get_context().should_checkpoint())
        return seen

    run_group(train, tmp_path, link=MemoryLink(lambda report: Answer(should_checkpoint=report.iteration == 1)))

    assert pickle.loads((tmp_path / "returned").read_bytes()) == [[True, False]] * 2


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


def test_an_open_checkpoint_of_a_rank_is_held_in_the_leader(tmp_path: Path) -> None:
    from trainables.store.delete import pins

    held: list[list[str]] = []

    def train(rank: int) -> None:
        session.report({}, checkpoint=saved(rank, model="x"))
        newest = session.get_checkpoint()
        assert newest is not None
        if rank == 1:
            with newest.as_directory():
                session.report({})
        else:
            session.report({})
        session.report({})

    def answer(report: Any) -> Answer:
        held.append(sorted(path.name for path in pins.paths()))
        return Answer()

    link = run_group(train, tmp_path, link=MemoryLink(answer))

    assert link.end == Finished()
    assert held == [[], ["checkpoint_000001"], []]
    assert not pins.paths()
