from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from driving import Driver

from trainables.session import report
from trainables.wire import Answer, AttemptErrored, Durable, Finished, Report, SavePublished
from tuner.executors.base import Event, Exited, Message
from tuner.executors.inline import InlineExecutor


class InlineDriver(Driver):
    """Tells that every result is durable, as the loop does with a journal that syncs in place."""

    def dispatch(self, events: Sequence[Event]) -> None:
        super().dispatch(events)
        for event in events:
            if isinstance(event, Message) and isinstance(event.body, Report):
                self.executor.tell(event.trial_id, Durable(event.body.iteration))


@pytest.fixture
def inline(tmp_path: Path) -> Iterator[Any]:
    def start(trainable: Any) -> InlineDriver:
        executor = InlineExecutor()
        executor.start(trainable, temporary=tmp_path)
        started.append(executor)
        return InlineDriver(executor, tmp_path)

    started: list[InlineExecutor] = []
    yield start
    for executor in started:
        executor.shutdown()


def kinds(driver: Driver) -> list[str]:
    return [type(e.body).__name__ if isinstance(e, Message) else type(e).__name__ for e in driver.events]


def test_a_trial_runs_in_this_process_and_thread(inline: Any) -> None:
    seen = []

    def trainable(config: Any) -> None:
        seen.append((os.getpid(), threading.current_thread()))
        report({"x": config["x"]})

    driver = inline(trainable)
    trial = driver.launch({"x": 4})
    assert not driver.executor.can_launch({"cpu": 1})
    assert driver.finish(trial).status == 0
    assert seen == [(os.getpid(), threading.main_thread())]
    assert kinds(driver) == ["Started", "Report", "Finished", "Exited"]
    assert driver.executor.can_launch({"cpu": 1})


def test_a_stop_ends_the_trial(inline: Any) -> None:
    def trainable(config: Any) -> None:
        while True:
            report({"x": 1})

    driver = inline(trainable)
    driver.answer = lambda said: Answer(then="stop" if said.iteration == 3 else "continue")
    driver.finish(driver.launch())
    assert kinds(driver) == ["Started", "Report", "Report", "Report", "Finished", "Exited"]


def test_an_error_is_a_message(inline: Any) -> None:
    def trainable(config: Any) -> None:
        raise ValueError("on purpose")

    driver = inline(trainable)
    trial = driver.launch()
    driver.finish(trial)
    assert [(e.type, e.message) for e in driver.errors(trial)] == [("ValueError", "on purpose")]


def test_checkpoints_are_published_before_report_returns(inline: Any, tmp_path: Path) -> None:
    seen = []

    def trainable(config: Any) -> None:
        from trainables.checkpoint import Checkpoint

        for i in range(2):
            report({"x": i}, checkpoint=Checkpoint.from_dict({"i": i}))
            seen.append(sorted(p.name for p in Path(config["directory"]).iterdir() if p.name.startswith("checkpoint")))

    driver = inline(trainable)
    trial = driver.launch({"directory": str(tmp_path / "t0")}, publish="blocking")
    driver.finish(trial)
    assert seen == [["checkpoint_000001"], ["checkpoint_000001", "checkpoint_000002"]], driver.events
    bodies = [type(e.body) for e in driver.events if isinstance(e, Message)]
    assert bodies == [Report, SavePublished, Report, SavePublished, Finished]


def test_kill_acts_at_the_next_report(inline: Any) -> None:
    after = []

    def trainable(config: Any) -> None:
        report({"x": 1})
        after.append(1)

    driver = inline(trainable)

    def answer(said: Report) -> Answer:
        driver.executor.kill("t0")
        return Answer()

    driver.answer = answer
    exited = driver.finish(driver.launch())
    assert (exited.reason, after) == ("killed", [])
    assert not any(isinstance(e.body, (Finished, AttemptErrored)) for e in driver.events if isinstance(e, Message))


def test_what_the_loop_raises_comes_out_of_run_once(inline: Any) -> None:
    def trainable(config: Any) -> None:
        try:
            report({"x": 1})
        except Exception:
            pytest.fail("the trial must not catch the driver's failure")

    driver = inline(trainable)

    def answer(said: Report) -> Answer:
        raise OSError("the loop's disk is full")

    driver.answer = answer
    driver.launch()
    with pytest.raises(OSError, match="the loop's disk is full"):
        driver.finish_all()
    assert not any(isinstance(e, Exited) for e in driver.events)


def test_ctrl_c_passes_through(inline: Any) -> None:
    def trainable(config: Any) -> None:
        raise KeyboardInterrupt

    driver = inline(trainable)
    driver.launch()
    with pytest.raises(KeyboardInterrupt):
        driver.finish_all()


def test_the_drivers_random_state_and_directory_are_put_back(inline: Any) -> None:
    def trainable(config: Any) -> None:
        report({"x": random.random()})

    random.seed(5)
    expected = random.Random(5).random()
    here = os.getcwd()
    driver = inline(trainable)
    trial = driver.launch(seed=1)
    driver.finish(trial)
    assert random.random() == expected != driver.reports(trial)[0]["x"]
    assert os.getcwd() == here


def test_wake_and_timeout_end_run_once(inline: Any) -> None:
    driver = inline(lambda config: None)
    driver.executor.run_once(driver.dispatch, 0.0)
    driver.executor.wake()
    driver.executor.run_once(driver.dispatch, None)
