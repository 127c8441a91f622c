"""What a trial reports and saves. Covers trainables/runtime/attempt.py, saving.py and saving_session.py."""

from __future__ import annotations

import logging
import math
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import trainables
from trainables import session
from trainables.checkpoint import Checkpoint
from trainables.errors import CheckpointNotFoundError, InvalidSettingError, MetricError, SessionError
from trainables.testing import MemoryLink, example_job, run_trial
from trainables.wire import Answer, AttemptErrored, Finished, Preempted, Report, SaveFailed


def visible(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if not name.startswith("."))


def hidden(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if name.startswith("."))


# ---------------------------------------------------------------- outside a trial


def test_outside_a_trial_report_says_so() -> None:
    with pytest.raises(SessionError, match="outside a trial"):
        session.report(loss=1)
    with pytest.raises(SessionError, match="outside a trial"):
        session.checkpoint_dir(step=1)


def test_outside_a_trial_questions_have_quiet_answers() -> None:
    context = session.get_context()
    assert session.get_checkpoint() is None
    assert session.get_trial_id() is None
    assert session.get_trial_resources() is None
    assert (context.get_world_rank(), context.get_world_size(), context.should_stop()) == (0, 1, False)


# ---------------------------------------------------------------- what may be reported

FORMS: list[tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]] = [
    (({"loss": 0.5},), {}, {"loss": 0.5}),
    ((), {"metrics": {"loss": 0.5}}, {"loss": 0.5}),
    ((), {"loss": 0.5, "acc": 1}, {"loss": 0.5, "acc": 1}),
    ((0.3,), {}, {"_metric": 0.3}),
    ((), {"_metric": 0.3}, {"_metric": 0.3}),
    (({},), {}, {}),
    ((), {}, {}),
    (({"metric": "my_metric"},), {}, {"metric": "my_metric"}),
    (({"a": 1},), {"b": 2}, {"a": 1, "b": 2}),
    (({"a": {"b": [1, None, True]}},), {}, {"a": {"b": [1, None, True]}}),
    (({"x": math.inf},), {}, {"x": math.inf}),
]


@pytest.mark.parametrize(("args", "kwargs", "expected"), FORMS)
def test_t02_every_form_of_a_report_arrives(
    tmp_path: Path, args: tuple[Any, ...], kwargs: dict[str, Any], expected: dict[str, Any]
) -> None:
    link = run_trial(lambda config: session.report(*args, **kwargs), tmp_path)
    assert expected.items() <= link.results[0].items()
    assert link.end == Finished()


def test_nan_passes(tmp_path: Path) -> None:
    link = run_trial(lambda config: session.report(loss=math.nan), tmp_path)
    assert math.isnan(link.results[0]["loss"])


def test_numpy_scalars_become_numbers(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    link = run_trial(lambda config: session.report(a=np.float32(0.5), b=np.int64(3), c=np.array(2.0)), tmp_path)
    assert [type(link.results[0][key]) for key in "abc"] == [float, int, float]


@pytest.mark.parametrize("value", [threading.Lock(), iter(()), object()], ids=["lock", "iterator", "object"])
def test_t02_what_cannot_be_written_is_an_error_with_its_key(tmp_path: Path, value: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        with pytest.raises(MetricError, match="outer/inner"):
            session.report({"outer": {"inner": value}})
        session.report(loss=1)  # nothing was sent, nothing was counted

    link = run_trial(train, tmp_path)
    assert [result["training_iteration"] for result in link.results] == [1]
    assert link.end == Finished()


def test_a_checkpoint_that_is_none_is_refused(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        with pytest.raises(InvalidSettingError, match="from_directory"):
            session.report({"loss": 1}, checkpoint="/some/path")  # type: ignore[arg-type]

    assert run_trial(train, tmp_path).end == Finished()


# ---------------------------------------------------------------- automatic keys


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


# ---------------------------------------------------------------- checkpoints


def test_t01_ten_reports_of_one_lent_directory_have_every_file(tmp_path: Path) -> None:
    base = tmp_path / "base"
    (base / "sub").mkdir(parents=True)
    (base / "sub" / "once").write_text("once")

    def train(config: dict[str, Any]) -> None:
        for step in range(10):
            (base / "step").write_text(str(step))
            session.report({"step": step}, checkpoint=Checkpoint.from_directory(base))
            (base / "step").write_text("changed behind")

    link = run_trial(train, tmp_path)
    assert len(link.published) == 10
    for ref in link.published:
        path = tmp_path / "train_t1" / ref.name
        assert (path / "sub" / "once").read_text() == "once"
        assert (path / "step").read_text() == str(ref.iteration - 1)
    assert sorted(os.listdir(base)) == ["step", "sub"]


def test_t01_a_moved_directory_is_empty_and_no_byte_was_copied(tmp_path: Path) -> None:
    inodes = []

    def train(config: dict[str, Any]) -> None:
        base = tmp_path / "base"
        base.mkdir()
        (base / "weights").write_bytes(b"w" * 1000)
        inodes.append((base / "weights").stat().st_ino)
        session.report({}, checkpoint=Checkpoint.from_directory(base, move=True))
        assert os.listdir(base) == []

    run_trial(train, tmp_path)
    assert (tmp_path / "train_t1" / "checkpoint_000001" / "weights").stat().st_ino == inodes[0]


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


def test_checkpoint_dir_is_taken_by_the_next_report_under_its_step(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        for step in (5, 10):
            with session.checkpoint_dir(step=step) as path:
                (Path(path) / "weights").write_text(str(step))
            session.report(loss=step)

    link = run_trial(train, tmp_path)
    assert [(ref.name, ref.iteration) for ref in link.published] == [("checkpoint_000005", 1), ("checkpoint_000010", 2)]
    assert (tmp_path / "train_t1" / "checkpoint_000010" / "weights").read_text() == "10"
    assert hidden(tmp_path / "train_t1") == []


def test_of_two_checkpoint_dirs_before_a_report_the_later_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def train(config: dict[str, Any]) -> None:
        for step in (1, 2):
            with session.checkpoint_dir(step=step) as path:
                (Path(path) / "weights").write_text(str(step))
        session.report(loss=1)

    run_trial(train, tmp_path)
    assert visible(tmp_path / "train_t1") == ["checkpoint_000002"]
    assert hidden(tmp_path / "train_t1") == []
    assert "twice before a report" in caplog.text


def test_a_checkpoint_dir_that_no_report_follows_is_not_lost(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        session.report(loss=0.5)
        with session.checkpoint_dir(step=7) as path:
            (Path(path) / "weights").write_text("last")

    link = run_trial(train, tmp_path)
    assert visible(tmp_path / "train_t1") == ["checkpoint_000007"]
    assert link.results[-1]["loss"] == 0.5


def test_a_checkpoint_dir_left_by_an_error_saves_nothing(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        with session.checkpoint_dir(step=1) as path:
            (Path(path) / "half").write_text("half")
            raise ValueError("broken")

    link = run_trial(train, tmp_path)
    assert isinstance(link.end, AttemptErrored)
    assert os.listdir(tmp_path / "train_t1") == []


@pytest.mark.parametrize("step", [-1, 1.5, "3"])
def test_a_step_that_is_no_count_is_refused(tmp_path: Path, step: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        with session.checkpoint_dir(step=step):
            pass

    assert run_trial(train, tmp_path).end.type == "InvalidSettingError"  # type: ignore[union-attr]


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


# ---------------------------------------------------------------- failing saves


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


# ---------------------------------------------------------------- decisions


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


# ---------------------------------------------------------------- told to leave


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


# ---------------------------------------------------------------- context


def test_the_context_knows_the_trial(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    def train(config: dict[str, Any]) -> None:
        context = session.get_context()
        seen.update(
            id=session.get_trial_id(),
            name=context.get_trial_name(),
            experiment=context.get_experiment_name(),
            directory=session.get_trial_dir(),
            resources=session.get_trial_resources(),
            ranks=(session.get_world_rank(), session.get_world_size(), session.get_local_rank()),
            seed=context.get_seed(),
        )

    run_trial(train, tmp_path, resources={"cpu": 2.0})
    assert seen.pop("seed") is not None
    assert seen == {
        "id": "t1",
        "name": "train_t1",
        "experiment": "experiment",
        "directory": str(tmp_path / "train_t1"),
        "resources": {"cpu": 2.0},
        "ranks": (0, 1, 0),
    }
    assert session.current() is None


def test_the_exported_names_are_sorted_and_load() -> None:
    assert trainables.__all__ == sorted(trainables.__all__)
    assert set(trainables.__all__) == set(trainables._HOME)
    for name in trainables.__all__:
        assert getattr(trainables, name) is not None
    assert trainables.session is session
    with pytest.raises(AttributeError):
        trainables.nothing  # noqa: B018


def test_a_job_can_be_made_for_tests(tmp_path: Path) -> None:
    assert example_job(tmp_path, {"x": 1}, attempt=3).attempt == 3
