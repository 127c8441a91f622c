"""A trial that goes on before its results are answered: how far, and what it does when that was wrong."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from trainables import session
from trainables.checkpoint import Checkpoint
from trainables.runtime.unanswered import AHEAD_BYTES, Ahead
from trainables.testing import MemoryLink, run_trial
from trainables.wire import Answer, Decided, Finished, Report


def free(until: int = 100) -> MemoryLink:
    return MemoryLink(lambda report: Answer(free_until=until))


def waited(link: MemoryLink) -> list[int]:
    """The results that waited for their answer."""
    return [report.iteration for report in link.of(Report) if report.waits]


def reports(count: int) -> Any:
    def train(config: dict[str, Any]) -> None:
        for step in range(count):
            session.report(step=step)

    return train


def test_a_trial_waits_once_and_then_where_somebody_decides(tmp_path: Path) -> None:
    link = run_trial(reports(6), tmp_path, link=free(until=4))
    assert waited(link) == [1, 4, 5, 6] and len(link.results) == 6
    assert link.end == Finished()


def test_a_trial_whose_driver_says_nothing_of_it_waits_always(tmp_path: Path) -> None:
    assert waited(run_trial(reports(3), tmp_path)) == [1, 2, 3]


def test_so_many_bytes_are_sent_without_an_answer() -> None:
    ahead = Ahead()
    ahead.answered(Answer(free_until=1000))
    assert [ahead.waits(step, AHEAD_BYTES // 4) for step in range(6)] == [False] * 4 + [True] * 2
    ahead.answered(Answer(free_until=1000))
    assert not ahead.waits(7, 10)


def test_who_says_done_waits_and_so_does_who_looks_whether_to_save(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        session.report(step=0)
        session.report(step=1)
        session.report(step=2, done=True)
        session.report(step=3)
        session.should_save()
        session.report(step=4)

    assert waited(run_trial(train, tmp_path, link=free())) == [1, 3, 5]


def test_a_trial_that_was_stopped_meanwhile_ends_and_its_save_goes(tmp_path: Path) -> None:
    link, steps = free(), []

    def train(config: dict[str, Any]) -> None:
        for step in range(10):
            steps.append(step)
            if step == 3:
                link.decide(Decided(2, Answer(then="stop")))
                with session.checkpoint_dir() as directory:
                    Path(directory, "weights").write_text("w")
            session.report(step=step)

    run_trial(train, tmp_path, link=link)
    assert steps == [0, 1, 2, 3] and len(link.results) == 3
    assert link.end == Finished() and os.listdir(tmp_path / "train_t1") == []


def test_a_wish_for_a_save_is_seen_and_the_next_result_waits(tmp_path: Path) -> None:
    link, seen = free(), []

    def train(config: dict[str, Any]) -> None:
        for step in range(5):
            if step == 2:
                link.decide(Decided(2, Answer(should_checkpoint=True)))
            session.report(step=step)
        seen.append(session.should_save())

    run_trial(train, tmp_path, link=link)
    assert waited(link) == [1, 3]


def test_saves_of_results_that_do_not_wait_are_published(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "w").write_text("w")

    def train(config: dict[str, Any]) -> None:
        session.report({})
        session.report({}, checkpoint=Checkpoint.from_directory(base))
        with session.checkpoint_dir() as directory:
            Path(directory, "w").write_text("w")
        session.report({})
        session.report({}, checkpoint=Checkpoint.from_directory(base, move=True))

    link = run_trial(train, tmp_path, link=free())
    assert waited(link) == [1] and [ref.iteration for ref in link.published] == [2, 3, 4]
    assert os.listdir(base) == []
