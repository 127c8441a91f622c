"""Saves are named, published behind the training one at a time, and counted when they fail."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainables.harness import visible
from trainables import session
from trainables.checkpoint import Checkpoint
from trainables.errors import PublishError, TransferError
from trainables.runtime.saving import Saver
from trainables.store import manifest, publish, staging, verify
from trainables.testing import MemoryLink, example_job, run_trial
from trainables.wire import AttemptErrored, CheckpointRef, Finished, Report, SaveFailed


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


# --- a saver alone -----------------------------------------------------------------------------------------


RAW = msgspec.Raw(b'{"loss":1}')


class Saves:
    """A saver of an attempt, and what its driver heard."""

    def __init__(self, root: Path, link: MemoryLink | None = None, **job: Any) -> None:
        self.link = link or MemoryLink()
        self.job = example_job(root, **job)
        self.saver = Saver(self.job, self.link, clock=time)

    def save(self, iteration: int, content: str = "x") -> CheckpointRef:
        staged = self.saver.open()
        (staged.path / "file").write_text(content)
        ref = self.saver.describe(staged, iteration).ref
        self.saver.publish(staged, ref, RAW)
        return ref


@pytest.fixture
def saves(tmp_path: Path) -> Iterator[Saves]:
    made = Saves(tmp_path)
    yield made
    made.saver.close()


@given(
    st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 5)), max_size=10),
    st.integers(1, 3),
    st.integers(1, 3),
    st.booleans(),
)
def test_no_two_saves_have_one_name_and_their_order_is_their_index(
    calls: list[tuple[int, int | None]], generation: int, attempt: int, by_index: bool
) -> None:
    with tempfile.TemporaryDirectory() as root:
        job = example_job(Path(root), generation=generation, attempt=attempt, name_by_index=by_index, save_count=7)
        saver = Saver(job, MemoryLink(), clock=time)
        refs = [saver.name(*call) for call in calls]

    assert len({ref.name for ref in refs}) == len(refs)
    assert [ref.index for ref in refs] == list(range(1, len(refs) + 1))
    assert [ref.iteration for ref in refs] == [iteration for iteration, _ in calls]
    for ref, (iteration, number) in zip(refs, calls, strict=True):
        shown = 7 + ref.index if by_index else iteration if number is None else number
        assert ref.name.startswith(f"checkpoint_{shown:06}")


def test_what_was_dropped_or_never_reported_is_gone(saves: Saves) -> None:
    directory = saves.job.directory
    one, other = saves.saver.open(), saves.saver.open()

    saves.saver.drop(one)
    saves.saver.drop(one)
    assert [directory / path for path in os.listdir(directory)] == [other.path]
    saves.saver.close()
    assert os.listdir(directory) == []


def test_a_directory_of_the_users_is_cloned_or_moved(saves: Saves, tmp_path: Path) -> None:
    for handed_over in (False, True):
        source = tmp_path / f"source{handed_over}"
        source.mkdir()
        (source / "a").write_text("1")
        announced, found = saves.saver.announce(Checkpoint(source), 3)
        staged = saves.saver.take(source, handed_over=handed_over, found=found)
        assert (announced.bytes, announced.uploading) == (1, False)
        assert (staged.path / "a").read_text() == "1"
        assert os.listdir(source) == ([] if handed_over else ["a"])


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), PublishError),
        (OSError(errno.EROFS, "Read-only file system"), PublishError),
        (FileNotFoundError(errno.ENOENT, "No such file", "of the user"), FileNotFoundError),
        (TransferError("another host's disk", errno=errno.ENOSPC), TransferError),
        (ValueError("of the user"), ValueError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_what_fails_while_it_is_written_is_dropped_and_only_this_disk_is_blamed(
    saves: Saves, error: BaseException, kind: type[BaseException]
) -> None:
    with pytest.raises(kind) as raised, saves.saver.writing(saves.saver.open()) as staged:
        (staged.path / "half").touch()
        raise error

    assert type(raised.value) is kind
    assert raised.value is error or raised.value.__cause__ is error
    assert os.listdir(saves.job.directory) == []


def test_abandoned_saves_are_never_published_however_far_they_are(tmp_path: Path) -> None:
    link = MemoryLink(durable=False)
    saves = Saves(tmp_path, link)
    saves.save(1)

    saves.saver.abandon()
    link.make_durable(1)
    saves.saver.close()

    assert link.published == []
    assert os.listdir(saves.job.directory) == []


def test_a_save_abandoned_while_its_manifest_is_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves = Saves(tmp_path, MemoryLink())
    prepare = publish.prepare

    def abandoned_meanwhile(staged: Path, **notes: Any) -> publish.PreparedCheckpoint:
        prepared = prepare(staged, **notes)
        saves.saver.abandon()
        staged.mkdir(exist_ok=True)  # as when a file is added between the listing of a directory and its removal
        (staged / "late").touch()
        return prepared

    monkeypatch.setattr(publish, "prepare", abandoned_meanwhile)
    saves.save(1)
    saves.saver.close()

    assert saves.link.published == []
    assert os.listdir(saves.job.directory) == []


def test_waiting_ends_with_its_time(tmp_path: Path) -> None:
    link = MemoryLink(durable=False)
    saves = Saves(tmp_path, link)
    assert saves.saver.wait(0)
    saves.save(1)

    assert not saves.saver.wait(0.01)
    link.make_durable(1)
    assert saves.saver.wait(60)
    saves.saver.close()


def test_a_driver_that_is_gone_makes_no_failure_and_leaves_nothing_staged(tmp_path: Path) -> None:
    link = MemoryLink(durable=False)
    saves = Saves(tmp_path, link)
    saves.save(1)

    link.vanish()
    saves.saver.close()

    saves.saver.failed(saves.saver.name(2), PublishError("full"))  # nobody hears it, and that is no error
    assert os.listdir(saves.job.directory) == [] and saves.saver.published is None


@pytest.mark.parametrize(("most", "raised_at"), [(0, 1), (1, 1), (3, 3)])
def test_so_many_failures_in_a_row_are_an_error_with_the_last_one_as_its_cause(
    tmp_path: Path, most: int, raised_at: int
) -> None:
    saves = Saves(tmp_path, max_publish_failures=most)
    for number in range(1, raised_at + 1):
        saves.saver.raise_if_failing()
        last = PublishError(errno.ENOSPC, f"full {number}")
        saves.saver.failed(saves.saver.name(number), last, raised=number == 1)

    with pytest.raises(PublishError, match=rf"{raised_at} checkpoints in a row .*full {raised_at}") as raised:
        saves.saver.raise_if_failing()
    assert raised.value.__cause__ is last
    assert [message.raised for message in saves.link.of(SaveFailed)] == [True, *[False] * (raised_at - 1)]
    saves.save(9)
    saves.saver.wait()
    saves.saver.raise_if_failing()
    saves.saver.close()


def test_whatever_fails_behind_the_training_is_told_and_the_next_save_is_made(
    saves: Saves, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(publish, "prepare", lambda *_, **__: 1 / 0)
        saves.save(1)
        saves.saver.wait()
    last = saves.save(2, "later")
    saves.saver.wait()

    (failed,) = saves.link.of(SaveFailed)
    assert "division by zero" in failed.error
    assert "met a bug" in caplog.text
    assert saves.link.published == [last]
    assert saves.saver.published == saves.job.directory / last.name
    assert verify.check(saves.saver.published).bytes == 5


def test_who_is_to_know_of_a_publish_first_is_called_before_the_driver(saves: Saves) -> None:
    seen: list[int] = []
    saves.saver.before_published = lambda: seen.append(len(saves.link.published))

    saves.save(1)
    saves.saver.wait()

    assert (seen, len(saves.link.published)) == ([0], 1)


def test_a_directory_that_another_process_staged_is_taken_over_with_its_notes(saves: Saves) -> None:
    path = staging.new_directory(saves.job.directory, "1-rank0")
    (path / "a").write_text("12")

    staged = saves.saver.adopt(path, {"ranks": 2}, uploading=True)
    pending = saves.saver.describe(staged, 4)
    saves.saver.publish(staged, pending.ref, RAW)
    saves.saver.wait()

    assert (pending.bytes, pending.uploading, staged.ref) == (2, True, pending.ref)
    published = manifest.read(saves.job.directory / pending.ref.name).manifest
    assert (published.extra, bytes(published.metrics)) == ({"ranks": 2}, bytes(RAW))
