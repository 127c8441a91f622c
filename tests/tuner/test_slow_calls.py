"""Warnings about callbacks and plug-ins that hold up the loop."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tuner.callback import Callback, CallbackList
from tuner.clock import VirtualClock
from tuner.driver.plugins.calling import call
from tuner.executors.simulated import SimulatedExecutor
from tuner.logger import LoggerCallback
from tuner.schedulers import Decision, FIFOScheduler
from tuner.search import Searcher
from tuner.slow_calls import timed, watched_calls

CLOCK = VirtualClock()


@pytest.fixture(autouse=True)
def warnings_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "tuner.slow_calls")


class Slow(Callback):
    """Its hooks take so many seconds."""

    def __init__(self, **seconds: float) -> None:
        self.seconds = seconds

    def on_step_begin(self, **info: Any) -> None:
        CLOCK.advance(self.seconds.get("on_step_begin", 0.0))

    def on_step_end(self, **info: Any) -> None:
        CLOCK.advance(self.seconds.get("on_step_end", 0.0))

    def is_preempted(self) -> bool:
        CLOCK.advance(self.seconds.get("is_preempted", 0.0))
        return False


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text.split(". ")[0] for text in caplog.messages]


def test_each_hook_that_takes_a_second_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    callbacks = CallbackList([Slow(on_step_begin=0.75, on_step_end=1.5, is_preempted=2.5), Callback()])
    with watched_calls(CLOCK, lambda: True):
        for turn in range(3):
            callbacks.on_step_begin(turn, [])
            callbacks.on_step_end(turn, [])
            assert callbacks.is_preempted() is False
    assert said(caplog) == ["Slow.on_step_end took 1.5 s", "Slow.is_preempted took 2.5 s"]
    assert caplog.messages[0].endswith(
        "Meanwhile the reports and starts of all trials waited: it runs in the driver's loop. Do what takes long in a "
        "thread. This is logged once for Slow.on_step_end"
    )


def test_a_call_that_delays_no_trial_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    callbacks = CallbackList([Slow(on_step_end=9.0)])
    callbacks.on_step_end(1, [])  # at the start and the end of a run nothing is watched
    with watched_calls(CLOCK, lambda: False):
        callbacks.on_step_end(1, [])
    assert not caplog.messages


def test_a_call_that_fails_is_an_error_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    with watched_calls(CLOCK, lambda: True), pytest.raises(KeyError), timed(lambda: "never asked"):
        CLOCK.advance(5.0)
        raise KeyError
    assert not caplog.messages


def test_a_plug_in_is_named_as_its_errors_name_it(caplog: pytest.LogCaptureFixture) -> None:
    class Stays(FIFOScheduler):
        def on_trial_result(self, trial: Any, result: dict[str, Any]) -> Any:
            CLOCK.advance(3.0)
            return super().on_trial_result(trial, result)

    with watched_calls(CLOCK, lambda: True):
        assert call(Stays(), "on_trial_result", None, {}) is Decision.CONTINUE
    assert said(caplog) == ["Stays.on_trial_result took 3.0 s"]


def slow_logger() -> dict[str, Any]:
    class Slowly(LoggerCallback):
        def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
            CLOCK.advance(4.0)

    return {"callbacks": [Slowly()]}


def slow_function() -> dict[str, Any]:
    def enough(trial_id: str, result: dict[str, Any]) -> bool:
        CLOCK.advance(4.0)
        return False

    return {"stop": enough}


def slow_scheduler() -> dict[str, Any]:
    class Slowly(FIFOScheduler):
        def on_trial_complete(self, trial: Any, result: dict[str, Any]) -> None:
            CLOCK.advance(4.0)

    return {"scheduler": Slowly()}


def slow_searcher() -> dict[str, Any]:
    class Slowly(Searcher):
        def suggest(self, trial_id: str) -> Any:
            CLOCK.advance(4.0)
            return {"n": 2}

    return {"search_alg": Slowly(), "max_concurrent_trials": 1}


@pytest.mark.parametrize(
    ("plugin", "name"),
    [
        (slow_logger, "slow_logger.<locals>.Slowly.on_trial_result"),
        (slow_function, "stop=slow_function.<locals>.enough"),
        (slow_scheduler, "Slowly.on_trial_complete"),
        (slow_searcher, "Slowly.suggest"),
    ],
)
def test_a_run_warns_once_of_what_holds_up_its_trials(plugin: Any, name: str, tmp_path: Path) -> None:
    def counts(config: dict[str, Any]) -> Iterator[tuple[float, dict[str, float]]]:
        for i in range(2):
            yield 60.0, {"loss": float(i)}

    tune.run(
        counts,
        name="e",
        storage_path=tmp_path,
        num_samples=3,
        verbose=0,
        executor=SimulatedExecutor(counts, clock=CLOCK),
        **plugin(),
    )
    lines = [line for line in (tmp_path / "e" / "driver.log").read_text().splitlines() if " took " in line]
    assert len(lines) == 1 and f"{name} took 4.0 s" in lines[0]
