"""What `report`, `should_stop` and their relatives do in a rank."""

from __future__ import annotations

import os
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.trainables.group.harness import error_of, leftovers, run_group, saved, trial_dir
from trainables import session
from trainables.checkpoint import Checkpoint
from trainables.errors import PublishError
from trainables.group.launcher import ForkLauncher
from trainables.job import SavePace
from trainables.store import staging
from trainables.testing import MemoryLink
from trainables.wire import Answer, Finished, Preempted, SaveFailed


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
            session.report({}, checkpoint=saved(model=str(rank)))

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


def test_an_exception_that_cannot_be_pickled_keeps_its_text(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        error = ValueError("has a lock")
        error.lock = threading.Lock()  # type: ignore[attr-defined]
        raise error

    error = error_of(run_group(train, tmp_path, size=1))

    assert error.message == "ValueError: has a lock"
    assert "in rank 0 of 1" in error.traceback


def test_a_report_that_cannot_be_written_fails_in_the_users_line(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        session.report({"bad": object()})

    error = error_of(run_group(train, tmp_path))

    assert error.type == "MetricError"
    assert 'session.report({"bad": object()})' in error.traceback


def test_a_save_beyond_the_budget_is_refused_at_every_rank(tmp_path: Path) -> None:
    def train(rank: int) -> None:
        session.report({}, checkpoint=saved(model="x" * 100))

    link = run_group(train, tmp_path, link=MemoryLink(lambda report: Answer(budget_error="too large")))

    assert error_of(link).type == "CheckpointBudgetError"
    assert not error_of(link).retry
    assert not leftovers(tmp_path)


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
        session.report({}, checkpoint=saved(model="x"))
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
            session.report({}, checkpoint=saved(model="x") if stop else None)
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


def test_what_is_asked_of_a_trial_is_seen_by_its_ranks(tmp_path: Path) -> None:
    def train(rank: int) -> list[bool]:
        seen = []
        for _ in range(2):
            session.report({})
            seen.append(session.get_context().should_checkpoint())
        return seen

    run_group(train, tmp_path, link=MemoryLink(lambda report: Answer(should_checkpoint=report.iteration == 1)))

    assert pickle.loads((tmp_path / "returned").read_bytes()) == [[True, False]] * 2


def test_ranks_agree_when_it_pays_to_save(tmp_path: Path) -> None:
    def train(rank: int) -> list[bool]:
        seen = []
        for _ in range(4):
            seen.append(session.should_save())
            if seen[-1]:
                with session.checkpoint_dir() as directory:
                    Path(directory, f"rank{rank}").write_text("")
            session.report({})
        return seen

    run_group(train, tmp_path, save_pace=SavePace(10.0, 10_000, 0.1))

    assert pickle.loads((tmp_path / "returned").read_bytes()) == [[False, True, True, True]] * 2


def test_an_open_checkpoint_of_a_rank_is_held_in_the_leader(tmp_path: Path) -> None:
    from trainables.store.delete import pins

    held: list[list[str]] = []

    def train(rank: int) -> None:
        session.report({}, checkpoint=saved(model="x"))
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
