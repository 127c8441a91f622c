from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from trainables import session
from trainables.checkpoint import Checkpoint
from trainables.errors import InvalidSettingError
from trainables.parameters import with_parameters
from trainables.runtime.function import check_signature
from trainables.testing import MemoryLink, run_trial
from trainables.trainable import Trainable
from trainables.wire import Answer, AttemptErrored, Finished


class Callable_:
    def __call__(self, config: dict[str, Any]) -> None: ...

    def method(self, config: dict[str, Any]) -> None: ...


ACCEPTED: list[tuple[Callable[..., Any], str | None]] = [
    (lambda config: None, None),
    (lambda anything: None, None),
    (lambda config, checkpoint_dir=None: None, "checkpoint_dir"),
    (lambda config, checkpoint_dir: None, "checkpoint_dir"),
    (lambda config, reporter: None, "reporter"),
    (lambda config, other=3: None, None),
    (lambda *args: None, None),
    (lambda config, **more: None, None),
    (functools.partial(lambda config, data: None, data=1), None),
    (Callable_(), None),
    (Callable_().method, None),
]

REFUSED: list[Callable[..., Any]] = [
    lambda: None,
    lambda config, data: None,
    lambda config, *, data: None,
    lambda checkpoint_dir=None: None,
    lambda reporter: None,
]


@pytest.mark.parametrize(("function", "second"), ACCEPTED)
def test_an_accepted_signature_says_what_it_wants(function: Callable[..., Any], second: str | None) -> None:
    assert check_signature(function) == second


@pytest.mark.parametrize("function", REFUSED)
def test_a_wrong_signature_is_refused_with_those_that_are_accepted(function: Callable[..., Any]) -> None:
    with pytest.raises(InvalidSettingError, match=r"accepted are f\(config\)"):
        check_signature(function)


def test_the_message_names_the_parameter_that_nobody_gives() -> None:
    with pytest.raises(InvalidSettingError, match=r"data.*with_parameters"):
        check_signature(lambda config, data: None)


def test_an_async_function_is_refused() -> None:
    async def train(config: dict[str, Any]) -> None: ...

    with pytest.raises(InvalidSettingError, match="async"):
        check_signature(train)


def test_a_generators_values_are_results(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> Generator[Any, None, Any]:
        yield {"loss": 1.0}
        yield 0.5
        return {"loss": 0.1}

    link = run_trial(train, tmp_path)
    assert [(r.get("loss"), r.get("_metric")) for r in link.results] == [(1.0, None), (None, 0.5), (0.1, None)]
    assert link.end == Finished()


def test_a_stopped_generator_is_closed(tmp_path: Path) -> None:
    closed = []

    def train(config: dict[str, Any]) -> Iterator[Any]:
        try:
            while True:
                yield 1
        finally:
            closed.append(True)

    run_trial(train, tmp_path, link=MemoryLink(lambda report: Answer(then="stop")))
    assert closed == [True]


@pytest.mark.parametrize(("returned", "key"), [({"loss": 1}, "loss"), (0.5, "_metric"), (3, "_metric")])
def test_what_is_returned_is_the_last_result(tmp_path: Path, returned: Any, key: str) -> None:
    link = run_trial(lambda config: returned, tmp_path)
    assert len(link.results) == 1
    assert key in link.results[0]


def test_none_returned_is_no_result(tmp_path: Path) -> None:
    link = run_trial(lambda config: None, tmp_path)
    assert link.results == []
    assert link.end == Finished()


def test_returning_something_else_without_a_result_is_an_error(tmp_path: Path) -> None:
    link = run_trial(lambda config: "done", tmp_path)
    assert isinstance(link.end, AttemptErrored)
    assert "not str" in link.end.message


def test_returning_something_else_after_results_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def train(config: dict[str, Any]) -> str:
        session.report(loss=1)
        return "done"

    link = run_trial(train, tmp_path)
    assert link.end == Finished()
    assert "str" in caplog.text


def test_the_reporter_reports(tmp_path: Path) -> None:
    def train(config: dict[str, Any], reporter: Any) -> None:
        assert reporter.trial_id == "t1"
        reporter(mean_accuracy=0.5)
        reporter({"mean_accuracy": 0.6})

    assert [r["mean_accuracy"] for r in run_trial(train, tmp_path).results] == [0.5, 0.6]


def test_the_old_function_api_saves_and_restores(tmp_path: Path) -> None:
    def train(config: dict[str, Any], checkpoint_dir: str | None = None) -> None:
        start = int((Path(checkpoint_dir) / "step").read_text()) + 1 if checkpoint_dir else 0
        for step in range(start, start + 2):
            with session.checkpoint_dir(step=step) as path:
                (Path(path) / "step").write_text(str(step))
            session.report(step=step)

    first = run_trial(train, tmp_path)
    last = first.published[-1]
    second = run_trial(
        train,
        tmp_path,
        attempt=2,
        checkpoint=last,
        checkpoint_path=tmp_path / "train_t1" / last.name,
        start_iteration=last.iteration,
    )
    assert [r["step"] for r in second.results] == [2, 3]
    assert [r["training_iteration"] for r in second.results] == [3, 4]


def test_sys_exit_without_a_complaint_is_an_end_and_with_one_an_error(tmp_path: Path) -> None:
    assert run_trial(lambda config: sys.exit(), tmp_path).end == Finished()
    assert run_trial(lambda config: sys.exit(3), tmp_path).end.type == "SystemExit"  # type: ignore[union-attr]


# ---------------------------------------------------------------- with_parameters


def test_bound_objects_arrive_by_name_and_are_not_copied(tmp_path: Path) -> None:
    data = [1, 2, 3]
    seen = []

    def train(config: dict[str, Any], checkpoint_dir: str | None = None, data: Any = None) -> None:
        seen.append(data)

    bound = with_parameters(train, data=data)
    run_trial(bound, tmp_path)
    assert seen[0] is data
    assert bound.__name__ == "train"
    assert check_signature(bound) == "checkpoint_dir"


def test_bound_generators_and_reporters_still_work(tmp_path: Path) -> None:
    def train(config: dict[str, Any], reporter: Any, data: Any) -> Iterator[int]:
        reporter(a=data)
        yield data

    assert len(run_trial(with_parameters(train, data=1), tmp_path).results) == 2


def test_a_bound_trainable_travels(tmp_path: Path) -> None:
    bound = cloudpickle.loads(cloudpickle.dumps(with_parameters(lambda config, data: {"sum": sum(data)}, data=[1, 2])))
    assert run_trial(bound, tmp_path).results[0]["sum"] == 3


def test_objects_bind_to_the_setup_of_a_class(tmp_path: Path) -> None:
    class Sum(Trainable):
        def setup(self, config: dict[str, Any], data: Any = None) -> None:
            self.data = data

        def step(self) -> dict[str, Any]:
            return {"sum": sum(self.data) + self.config["x"], "done": True}

    bound = with_parameters(Sum, data=[1, 2])
    assert bound.__name__ == "Sum"
    assert run_trial(bound, tmp_path, config={"x": 4}).results[0]["sum"] == 7
    assert cloudpickle.loads(cloudpickle.dumps(bound))({"x": 0}).train()["sum"] == 3


@pytest.mark.parametrize("name", ["dato", "config", "checkpoint_dir"])
def test_a_name_that_cannot_be_bound_is_refused(name: str) -> None:
    def train(config: dict[str, Any], checkpoint_dir: str | None = None, data: Any = None) -> None: ...

    with pytest.raises(InvalidSettingError, match=name):
        with_parameters(train, **{name: 1})


def test_a_checkpoint_of_a_function_is_a_real_one(tmp_path: Path) -> None:
    checkpoint = Checkpoint.from_bytes(cloudpickle.dumps(3))
    link = run_trial(lambda config: session.report({}, checkpoint=checkpoint), tmp_path)
    assert Checkpoint(tmp_path / "train_t1" / link.published[0].name).to_dict() == {"bytes_data": 3}
