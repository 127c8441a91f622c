"""What a trial reports and saves, as its code calls it."""

from __future__ import annotations

import math
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import trainables
from tests.trainables.harness import visible
from trainables import session
from trainables.checkpoint import Checkpoint
from trainables.errors import InvalidSettingError, MetricError, SessionError
from trainables.testing import run_trial
from trainables.wire import AttemptErrored, Finished


def hidden(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if name.startswith("."))


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
