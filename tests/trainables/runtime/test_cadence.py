"""When a trial saves by itself: the interval of Young and Daly, from what was measured and seen."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables import session
from trainables.job import SavePace
from trainables.runtime.cadence import SHARE, SaveCadence, best_interval, mean_between
from trainables.testing import MemoryLink, run_trial
from trainables.trainable import Trainable
from trainables.wire import Answer, Report

BENCH = Path(__file__).parents[3] / "benchmarks"
SECONDS = st.floats(1e-4, 1e5)


class Standing:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def time(self) -> float:
        return self.now

    monotonic = time


@given(SECONDS, SECONDS)
def test_the_interval_costs_least(save_s: float, between_s: float) -> None:
    interval = best_interval(save_s, between_s)
    assert 0 < interval <= max(between_s, math.sqrt(2 * save_s * between_s) * 1.6)

    def cost(train_s: float) -> float:  # Daly's model: exponential interruptions, restarts cost nothing
        return between_s * math.expm1(min((train_s + save_s) / between_s, 500)) / train_s

    if save_s < between_s:
        assert cost(interval) <= 1.02 * min(cost(interval / 1.3), cost(interval * 1.3))


@given(st.integers(1, 1000), st.floats(1.0, 1e5))
def test_what_was_seen_outweighs_what_is_assumed(number: int, between_s: float) -> None:
    seen = mean_between(number * between_s, number)
    assert between_s * 0.6 < seen < between_s * (2.1 if number == 1 else 1.7)
    assert mean_between(0.0, 0) < mean_between(3600.0, 0)


@given(save_s=st.floats(0.01, 100), step_s=st.floats(0.01, 100), trained_s=st.floats(0, 1e6))
def test_without_an_interruption_saving_takes_two_percent_at_most(
    save_s: float, step_s: float, trained_s: float
) -> None:
    clock, saving = Standing(), 0.0
    cadence = SaveCadence(SavePace(trained_s, 0, save_s), clock)
    began = clock.now
    for _ in range(300):
        clock.now += step_s
        cadence.step_done()
        due = cadence.due()
        cadence.reported(saved=False)
        if due:
            clock.now += save_s
            saving += save_s
            cadence.saved()
    assert saving <= SHARE * (clock.now - began) + 1e-6


def bench() -> Any:
    sys.path.insert(0, str(BENCH))
    try:
        spec = importlib.util.spec_from_file_location("save_cadence", BENCH / "save_cadence.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCH))
    return module


@pytest.mark.parametrize(("mean_s", "save_s", "step_s"), [(120.0, 1.0, 5.0), (600.0, 5.0, 5.0), (3600.0, 20.0, 30.0)])
def test_saving_and_lost_work_are_near_the_least_that_a_fixed_frequency_reaches(
    mean_s: float, save_s: float, step_s: float
) -> None:
    assert bench().of_best(mean_s, save_s, step_s, span_s=30 * mean_s, seeds=2) < 1.1


def test_a_save_is_due_before_the_machine_goes() -> None:
    clock = Standing()
    cadence = SaveCadence(SavePace(1e6, 0, 2.0, deadline=clock.now + 100), clock)
    due = []
    for _ in range(13):
        clock.now += 10
        cadence.step_done()
        due.append(cadence.due())
        cadence.reported(saved=False)
    # After 80 s another step and a save might not fit; after 100 s it goes on: what was said was not the end.
    assert due == [False] * 7 + [True] * 3 + [False] * 3


def trains(steps: int, clock: Standing, asked: list[bool]) -> Any:
    def train(config: dict[str, Any]) -> None:
        for step in range(steps):
            clock.now += 1
            saves = session.should_save()
            assert saves == session.should_save() == session.get_context().should_checkpoint()
            asked.append(saves)
            if saves:
                with session.checkpoint_dir() as directory:
                    clock.now += 0.1
                    Path(directory, "step").write_text(str(step))
            session.report({"step": step})

    return train


def test_a_function_that_asks_saves_once_and_then_when_it_pays(tmp_path: Path) -> None:
    clock, asked = Standing(), list[bool]()
    link = run_trial(trains(70, clock, asked), tmp_path, clock=clock, save_pace=SavePace())
    saved = [step for step, due in enumerate(asked) if due]
    assert saved[0] == 1, "as soon as a step is known, to learn what a save takes"
    assert len(saved) >= 3 and min(b - a for a, b in zip(saved, saved[1:], strict=False)) >= 0.1 / SHARE
    assert [report.save_s for report in link.of(Report) if report.save_s] == pytest.approx([0.1] * len(saved), rel=0.01)


def test_interruptions_that_were_seen_have_it_save_more_often(tmp_path: Path) -> None:
    counts = []
    for number, seen in enumerate((SavePace(10_000.0, 1, 0.1), SavePace(10_000.0, 2_000, 0.1))):
        clock, asked = Standing(), list[bool]()
        run_trial(trains(60, clock, asked), tmp_path / str(number), clock=clock, save_pace=seen)
        counts.append(sum(asked))
    assert counts == [1, 59]  # a second between saves for interruptions five seconds apart; the first step is not known


def test_what_is_asked_for_is_saved_beside(tmp_path: Path) -> None:
    clock, asked = Standing(), list[bool]()
    link = MemoryLink(lambda report: Answer(should_checkpoint=report.iteration == 3))
    run_trial(trains(6, clock, asked), tmp_path, clock=clock, link=link, save_pace=SavePace(1e6, 0, 1e3))
    assert asked == [False, False, False, True, False, False]


def test_without_a_pace_only_what_is_asked_for_is_saved(tmp_path: Path) -> None:
    clock, asked = Standing(), list[bool]()
    run_trial(trains(6, clock, asked), tmp_path, clock=clock)
    assert asked == [False] * 6
    assert session.should_save() is False


def test_a_class_says_with_its_results_that_a_save_pays(tmp_path: Path) -> None:
    clock = Standing()

    class Steps(Trainable):
        def step(self) -> dict[str, Any]:
            clock.now += 1
            return {"done": self.iteration == 59}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            clock.now += 0.05

        def load_checkpoint(self, checkpoint: Any) -> None:
            raise AssertionError

    link = MemoryLink(lambda report: Answer(save=report.save_due))
    run_trial(Steps, tmp_path, clock=clock, link=link, save_pace=SavePace())
    due = [report.iteration for report in link.of(Report) if report.save_due]
    assert due[0] == 1 and 1 < len(due) < 6
    assert [report.save_s for report in link.of(Report) if report.save_s] == pytest.approx([0.05] * len(due), rel=0.01)
