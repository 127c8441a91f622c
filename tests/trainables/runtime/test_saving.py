"""Saves are named, published behind the training one at a time, and counted when they fail."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.trainables.harness import visible
from trainables import session
from trainables.checkpoint import Checkpoint
from trainables.testing import MemoryLink, run_trial
from trainables.wire import AttemptErrored, Finished, Report, SaveFailed


def test_a_checkpoint_is_announced_with_its_size_and_published_behind(tmp_path: Path) -> None:
    link = run_trial(lambda config: session.report({}, checkpoint=Checkpoint.from_dict({"a": 1})), tmp_path)
    (report,) = link.of(Report)
    assert report.saving.ref == link.published[0]
    assert report.saving.bytes > 0
    published = Checkpoint(tmp_path / "train_t1" / "checkpoint_000001")
    assert published.to_dict() == {"a": 1}
    assert published.metrics is not None and published.metrics["training_iteration"] == 1


def test_nothing_is_visible_before_the_journal_is_durable(tmp_path: Path) -> None:
    link = MemoryLink(durable=False)
    seen = []

    def train(config: dict[str, Any]) -> None:
        session.report({}, checkpoint=Checkpoint.from_dict({"a": 1}))
        seen.append(visible(Path.cwd()))
        link.make_durable(1)

    run_trial(train, tmp_path, link=link)
    assert seen == [[]]
    assert visible(tmp_path / "train_t1") == ["checkpoint_000001"]


def test_the_next_save_waits_for_the_one_before(tmp_path: Path) -> None:
    order: list[str] = []
    about_to_save = threading.Event()

    class Late(MemoryLink):
        def wait_durable(self, iteration: int) -> None:
            about_to_save.wait()
            order.append(f"result {iteration} is durable")

    def train(config: dict[str, Any]) -> None:
        session.report({}, checkpoint=Checkpoint.from_dict({"a": 1}))
        about_to_save.set()
        with session.checkpoint_dir():
            order.append("second save begins")
        session.report({})

    run_trial(train, tmp_path, link=Late())
    assert order == ["result 1 is durable", "second save begins", "result 2 is durable"]


def test_blocking_publishes_inside_the_report(tmp_path: Path) -> None:
    seen = []

    def train(config: dict[str, Any]) -> None:
        session.report({}, checkpoint=Checkpoint.from_dict({"a": 1}))
        seen.append(visible(Path.cwd()))

    run_trial(train, tmp_path, publish="blocking")
    assert seen == [["checkpoint_000001"]]


NAMES: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["checkpoint_000007", "checkpoint_000007.2", "checkpoint_000003"]),
    ({"attempt": 2}, ["checkpoint_000007-1.2", "checkpoint_000007-1.2.2", "checkpoint_000003-1.2"]),
    (
        {"name_by_index": True, "save_count": 4, "generation": 2},
        ["checkpoint_000005-2.1", "checkpoint_000006-2.1", "checkpoint_000007-2.1"],
    ),
]


@pytest.mark.parametrize(("changes", "names"), NAMES, ids=["first life", "second attempt", "by index"])
def test_names_are_unique_without_looking(tmp_path: Path, changes: dict[str, Any], names: list[str]) -> None:
    def train(config: dict[str, Any]) -> None:
        for step in (7, 7, None):
            with session.checkpoint_dir(step):
                pass
            session.report({})

    link = run_trial(train, tmp_path, **changes)
    assert [ref.name for ref in link.published] == names
    assert [ref.index for ref in link.published] == [1, 2, 3]


def test_f16_a_failed_publish_is_told_within_one_report_and_three_fail_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    from trainables.store import fs

    def full(path: Any, data: bytes, **_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(fs, "write_file", full)
    told_at: list[int] = []

    def train(config: dict[str, Any]) -> None:
        for n in range(10):
            session.report({"n": n}, checkpoint=Checkpoint.from_dict({"n": n}))
            told_at.append(len(link.of(SaveFailed)))

    link = MemoryLink()
    run_trial(train, tmp_path, link=link, publish="blocking")
    assert told_at == [1, 2]
    assert isinstance(link.end, AttemptErrored)
    assert link.end.type == "PublishError"
    assert "3 checkpoints in a row" in link.end.message and "bytes are free" in link.end.message
    assert link.published == []
    assert os.listdir(tmp_path / "train_t1") == []


def test_a_success_ends_the_row_of_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainables.errors import PublishError
    from trainables.store import publish

    commit = publish.commit

    def often_failing(prepared: Any, final: Path) -> Any:
        if prepared.ref.index % 3:
            raise PublishError(28, "full")
        return commit(prepared, final)

    monkeypatch.setattr(publish, "commit", often_failing)

    def train(config: dict[str, Any]) -> None:
        for n in range(7):
            session.report({"n": n}, checkpoint=Checkpoint.from_dict({"n": n}))

    link = run_trial(train, tmp_path)
    assert link.end == Finished()
    assert [ref.iteration for ref in link.published] == [3, 6]
    assert len(link.of(SaveFailed)) == 5
