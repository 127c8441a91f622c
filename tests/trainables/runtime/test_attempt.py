"""One attempt: what its results carry, what it is told by the driver, and how it leaves."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from trainables import session
from trainables.checkpoint import Checkpoint
from trainables.errors import CheckpointNotFoundError
from trainables.testing import MemoryLink, run_trial
from trainables.wire import Answer, AttemptErrored, Finished, Preempted, Report, SaveFailed


class Standing:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.wall, self.mono = 1_700_000_000.0, 0.0

    def time(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.mono


def test_results_carry_the_automatic_keys(tmp_path: Path) -> None:
    clock = Standing()

    def train(config: dict[str, Any]) -> None:
        for _ in range(2):
            clock.mono += 1.5
            session.report(loss=1)

    link = run_trial(train, tmp_path, clock=clock, start_iteration=10, start_time_total_s=100.0, experiment_tag="0_x=1")
    last = link.results[-1]
    assert (last["training_iteration"], last["iterations_since_restore"]) == (12, 2)
    assert (last["time_this_iter_s"], last["time_total_s"], last["time_since_restore"]) == (1.5, 103.0, 3.0)
    assert (last["trial_id"], last["experiment_tag"], last["pid"], last["done"]) == ("t1", "0_x=1", os.getpid(), False)
    assert last["timestamp"] == 1_700_000_000
    assert {"date", "hostname", "node_ip"} <= last.keys()
    assert "should_checkpoint" not in last


def test_t12_a_jump_of_the_wall_clock_changes_no_duration(tmp_path: Path) -> None:
    clock = Standing()

    def train(config: dict[str, Any]) -> None:
        for jump in (-86400, 365 * 86400):
            clock.wall += jump
            clock.mono += 1
            session.report(loss=1)

    link = run_trial(train, tmp_path, clock=clock)
    assert [result["time_this_iter_s"] for result in link.results] == [1, 1]


def test_the_users_own_time_and_done_count(tmp_path: Path) -> None:
    link = run_trial(lambda config: session.report(time_this_iter_s=7.0, done=True), tmp_path)
    assert (link.results[0]["time_total_s"], link.results[0]["done"]) == (7.0, True)


def test_get_checkpoint_is_the_start_and_then_the_newest(tmp_path: Path) -> None:
    first = run_trial(lambda config: session.report({}, checkpoint=Checkpoint.from_dict({"n": 1})), tmp_path)
    seen = []

    def train(config: dict[str, Any]) -> None:
        for n in (2, 3):
            checkpoint = session.get_checkpoint()
            assert checkpoint is not None
            seen.append(checkpoint.to_dict()["n"])
            session.report({}, checkpoint=Checkpoint.from_dict({"n": n}))
        last = session.get_checkpoint()
        assert last is not None
        seen.append(last.to_dict()["n"])

    ref = first.published[0]
    path = tmp_path / "train_t1" / ref.name
    run_trial(train, tmp_path, attempt=2, checkpoint=ref, checkpoint_path=path, start_iteration=1)
    assert seen == [1, 2, 3]


def test_a_refused_save_raises_and_leaves_nothing(tmp_path: Path) -> None:
    link = MemoryLink(lambda report: Answer(budget_error="10 bytes too many"))
    run_trial(lambda config: session.report({}, checkpoint=Checkpoint.from_dict({"n": 1})), tmp_path, link=link)
    assert isinstance(link.end, AttemptErrored)
    assert (link.end.type, link.end.message, link.end.retry) == ("CheckpointBudgetError", "10 bytes too many", False)
    assert os.listdir(tmp_path / "train_t1") == []


def test_a_clone_that_does_not_fit_costs_the_checkpoint_and_not_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    from trainables.store import fs

    base = tmp_path / "base"
    base.mkdir()
    (base / "w").write_text("w")

    def full(source: Any, target: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(target))

    monkeypatch.setattr(fs, "copy_file", full)
    link = run_trial(lambda config: session.report({"x": 1}, checkpoint=Checkpoint.from_directory(base)), tmp_path)
    assert link.results[0]["x"] == 1
    assert len(link.of(SaveFailed)) == 1
    assert link.end == Finished()
    assert os.listdir(tmp_path / "train_t1") == []


@pytest.mark.parametrize("then", ["stop", "pause"])
def test_a_decision_unwinds_the_function_and_its_finally_blocks_run(tmp_path: Path, then: Any) -> None:
    steps = []

    def train(config: dict[str, Any]) -> None:
        try:
            for step in range(10):
                steps.append(step)
                try:
                    session.report(step=step)
                except Exception:
                    steps.append(-1)
        finally:
            steps.append(99)

    link = MemoryLink(lambda report: Answer(then=then if report.iteration == 2 else "continue"))
    run_trial(train, tmp_path, link=link)
    assert steps == [0, 1, 99]
    assert link.end == Finished()


@pytest.mark.parametrize("then", ["stop", "pause"])
def test_a_decision_stands_though_the_function_catches_that_its_directory_is_gone(tmp_path: Path, then: Any) -> None:
    lent = tmp_path / "lent"
    lent.mkdir()
    caught = []

    class Vanishing(MemoryLink):
        def call(self, report: Report, *meanwhile: Any) -> Answer:
            if report.saving is not None:
                lent.rmdir()
            return super().call(report, *meanwhile)

    def train(config: dict[str, Any]) -> None:
        for checkpoint in (Checkpoint.from_directory(lent), None, None):
            try:
                session.report({}, checkpoint=checkpoint)
            except OSError as error:
                caught.append(error)

    link = Vanishing(lambda report: Answer(then=then if report.iteration == 1 else "continue"))
    run_trial(train, tmp_path, link=link)
    assert [type(error) for error in caught] == [CheckpointNotFoundError]
    assert len(link.results) == len(link.of(SaveFailed)) == 1
    assert link.end == Finished()


def test_a_function_that_swallows_the_end_cannot_go_on_reporting(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        for _ in range(3):
            try:
                session.report({})
            except BaseException:
                pass

    link = run_trial(train, tmp_path, link=MemoryLink(lambda report: Answer(then="stop")))
    assert len(link.results) == 1
    assert link.end == Finished()


def test_should_checkpoint_is_seen_after_the_report_that_asked(tmp_path: Path) -> None:
    seen = []

    def train(config: dict[str, Any]) -> None:
        for _ in range(3):
            session.report({})
            seen.append(session.get_context().should_checkpoint())

    run_trial(train, tmp_path, link=MemoryLink(lambda report: Answer(should_checkpoint=report.iteration == 2)))
    assert seen == [False, True, False]


def test_a_function_that_never_looks_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def train(config: dict[str, Any]) -> None:
        for _ in range(5):
            session.report({})

    with caplog.at_level(logging.WARNING):
        run_trial(train, tmp_path, link=MemoryLink(lambda report: Answer(should_checkpoint=True)))
    assert caplog.text.count("should_checkpoint") >= 1
    assert len(caplog.records) == 1


def test_a_function_that_returns_when_told_is_unfinished(tmp_path: Path) -> None:
    link = MemoryLink()

    def train(config: dict[str, Any]) -> None:
        for step in range(100):
            session.report(step=step)
            if step == 3:
                link.halt()
            if session.get_context().should_stop():
                session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))
                return

    run_trial(train, tmp_path, link=link)
    assert link.end == Preempted()
    assert len(link.published) == 1
    assert link.messages[-1] == Preempted()  # after everything is on disk


def test_a_function_that_does_not_look_ends_with_its_next_checkpoint(tmp_path: Path) -> None:
    link = MemoryLink()

    def train(config: dict[str, Any]) -> None:
        for step in range(1, 100):
            if step == 7:
                link.halt()
            if step % 5 == 0:
                session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))
            else:
                session.report(step=step)

    run_trial(train, tmp_path, link=link)
    assert link.end == Preempted()
    assert [ref.iteration for ref in link.published] == [5, 10]
    assert len(link.results) == 10


def test_a_function_that_never_saves_ends_at_its_next_report(tmp_path: Path) -> None:
    link = MemoryLink()

    def train(config: dict[str, Any]) -> None:
        link.halt()
        for step in range(100):
            session.report(step=step)

    run_trial(train, tmp_path, link=link)
    assert link.end == Preempted()
    assert len(link.results) == 1


def test_a_function_that_ends_by_itself_without_looking_is_finished(tmp_path: Path) -> None:
    link = MemoryLink()
    run_trial(lambda config: link.halt(), tmp_path, link=link)
    assert link.end == Finished()


def test_when_the_driver_dies_nothing_is_said_and_nothing_left(tmp_path: Path) -> None:
    link = MemoryLink(durable=False)

    def train(config: dict[str, Any]) -> None:
        session.report({}, checkpoint=Checkpoint.from_dict({"a": 1}))
        link.vanish()
        session.report({})

    run_trial(train, tmp_path, link=link)
    assert [type(message) for message in link.messages] == [Report]
    assert os.listdir(tmp_path / "train_t1") == []
