"""The seam between the loop and whatever runs trials: every executor has all of it, and keeps the order of events."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from driving import Driver

import tuner as tune
from trainables.wire import Answer, Finished, Report
from tuner.executors import InlineExecutor, LocalExecutor, RayExecutor, SimulatedExecutor
from tuner.executors.base import KILLED, Executor, Exited, Message, Started

KINDS = [InlineExecutor, LocalExecutor, RayExecutor, SimulatedExecutor]
OPERATIONS = [name for name, value in vars(Executor).items() if inspect.isfunction(value) and not name.startswith("_")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_executor_takes_what_the_loop_gives(kind: type, name: str) -> None:
    wanted, has = (inspect.signature(getattr(owner, name)).parameters for owner in (Executor, kind))
    assert list(has)[: len(wanted)] == list(wanted)
    assert {key: parameter.kind for key, parameter in wanted.items()} == {key: has[key].kind for key in wanted}
    assert {key: parameter.default for key, parameter in wanted.items()} == {key: has[key].default for key in wanted}
    assert all(parameter.default is not parameter.empty for key, parameter in has.items() if key not in wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_every_executor_says_what_it_is(kind: type) -> None:
    executor = kind(lambda config: iter(())) if kind is SimulatedExecutor else kind()
    assert isinstance(executor.inline, bool) and isinstance(executor.directories, bool)
    assert executor.max_concurrent is None or executor.max_concurrent > 0
    assert executor.clock.time() > 0
    assert (executor.remote_hosts is not None) == (kind is RayExecutor)


def trainable(config: dict[str, Any]) -> None:
    for n in range(config["results"]):
        tune.report({"n": n})


def model(config: dict[str, Any]) -> Iterator[tuple[float, dict[str, Any]]]:
    for n in range(config["results"]):
        yield 1.0, {"n": n}


Begin = Callable[[], Driver]


@pytest.fixture(params=["inline", "local", "simulated"])
def begin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Begin]:
    """A driver of an executor that was started."""
    made: list[Any] = []

    def start() -> Driver:
        kinds = {
            "inline": InlineExecutor,
            "local": lambda: LocalExecutor(cpus=2),
            "simulated": lambda: SimulatedExecutor(model, slots=2),
        }
        executor = kinds[request.param]()
        (tmp_path / "temporary").mkdir()
        executor.start(trainable, marker=f"base-{tmp_path}", temporary=tmp_path / "temporary")
        made.append(executor)
        return Driver(executor, tmp_path)

    yield start
    for executor in made:
        executor.shutdown()


def test_an_attempt_starts_speaks_says_its_last_word_and_is_over(begin: Begin) -> None:
    driver = begin()
    trial = driver.launch({"results": 2})
    assert driver.finish(trial) == Exited(trial, 1, 0)
    kinds = [type(event.body if isinstance(event, Message) else event) for event in driver.events]
    assert kinds == [Started, Report, Report, Finished, Exited]
    assert {(event.trial_id, event.attempt) for event in driver.events} == {(trial, 1)}


def test_who_is_told_to_stop_reports_no_more(begin: Begin) -> None:
    driver = begin()
    driver.answer = lambda report: Answer(then="stop" if report.iteration == 2 else "continue")
    trial = driver.launch({"results": 9})
    assert driver.finish(trial).status == 0
    assert [event.body.iteration for event in driver.events if isinstance(getattr(event, "body", None), Report)] == [
        1,
        2,
    ]


def test_room_is_taken_at_the_launch_and_given_back_with_the_exit(begin: Begin) -> None:
    driver = begin()
    executor, all_of_it = driver.executor, driver.executor.total()
    assert executor.can_launch(all_of_it)
    if executor.max_concurrent != 1:  # else the loop promises nothing
        assert not executor.can_launch(all_of_it, promised=[{"cpu": 1.0}])
    trial = driver.launch({"results": 1}, resources=dict(all_of_it))
    assert not executor.can_launch({"cpu": 1.0})
    driver.finish(trial)
    assert executor.can_launch(all_of_it)


def test_who_is_gone_can_be_told_and_killed_without_an_error(begin: Begin) -> None:
    driver = begin()
    trial = driver.launch({"results": 1})
    driver.finish(trial)
    before = list(driver.events)
    driver.executor.tell(trial, Answer())
    driver.executor.kill(trial)
    driver.executor.wake()
    driver.executor.run_once(driver.dispatch, 0.0)
    assert driver.events == before


def test_wake_ends_a_wait_that_has_no_end(begin: Begin) -> None:
    driver = begin()
    driver.executor.wake()
    driver.executor.run_once(driver.dispatch, None)
    driver.executor.shutdown()
    driver.executor.shutdown()  # once more is no error
    assert driver.executor.owned_processes() == []


def test_a_process_that_was_ended_by_force_has_the_status_of_its_signal() -> None:
    import signal

    assert KILLED == -signal.SIGKILL
