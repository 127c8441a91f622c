from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driving import Driver

import tuner as tune
from trainables.job import Job
from trainables.wire import Answer, Finished, Halt, Preempted, Report
from tuner.clock import VirtualClock
from tuner.error import SettingError
from tuner.executors.base import Exited, Launch, Message, Started
from tuner.executors.simulated import SimulatedExecutor
from tuner.schedulers import HyperBandScheduler


def three_minutes(config: dict[str, Any]) -> Iterator[tuple[float, dict[str, float]]]:
    for i in range(3):
        yield config.get("step", 60.0), {"loss": 1 / (i + 1)}


@pytest.fixture
def simulate(tmp_path: Path) -> Any:
    def start(model: Any, **settings: Any) -> Driver:
        return Driver(SimulatedExecutor(model, **settings), tmp_path)

    return start


def test_time_passes_only_as_the_trials_need_it(simulate: Any) -> None:
    driver = simulate(three_minutes)
    trial = driver.launch()
    driver.finish(trial)
    assert driver.executor.clock.monotonic() == 180.0
    reports = driver.reports(trial)
    assert [r["training_iteration"] for r in reports] == [1, 2, 3]
    assert [r["time_total_s"] for r in reports] == [60.0, 120.0, 180.0]
    assert [r["loss"] for r in reports] == [1.0, 0.5, pytest.approx(1 / 3)]


def test_trials_run_beside_each_other(simulate: Any) -> None:
    driver = simulate(three_minutes, slots=2)
    driver.launch({"step": 60.0})
    driver.launch({"step": 45.0})
    assert not driver.executor.can_launch({"cpu": 1})
    driver.finish_all()
    order = [e.trial_id for e in driver.events if isinstance(e, Message) and isinstance(e.body, Report)]
    assert order == ["t1", "t0", "t1", "t0", "t1", "t0"]
    assert driver.executor.clock.monotonic() == 180.0


def test_what_happens_at_one_instant_is_one_batch(simulate: Any) -> None:
    driver = simulate(three_minutes, slots=3)
    for _ in range(3):
        driver.launch()
    batches: list[int] = []
    dispatch = driver.dispatch
    driver.dispatch = lambda events: (batches.append(len(events)), dispatch(events))
    driver.finish_all()
    assert batches == [3, 3, 3, 3, 6]


@pytest.mark.parametrize("then", ["stop", "pause"])
def test_a_decision_ends_the_trial(simulate: Any, then: Any) -> None:
    driver = simulate(three_minutes)
    driver.answer = lambda report: Answer(then=then if report.iteration == 2 else "continue")
    trial = driver.launch()
    driver.finish(trial)
    assert len(driver.reports(trial)) == 2
    assert isinstance(driver.events[-2].body, Finished)


def test_kill_timeout_and_halt(simulate: Any) -> None:
    driver = simulate(three_minutes, slots=3)
    timed = driver.launch(timeout_s=90.0)
    halted = driver.launch()
    killed = driver.launch()
    driver.until(lambda: bool(driver.reports(timed)))
    driver.executor.kill(killed)
    driver.executor.tell(halted, Halt())
    driver.finish_all()
    assert {e.trial_id: e.reason for e in driver.exits()} == {timed: "timeout", halted: None, killed: "killed"}
    assert [type(e.body) for e in driver.events if isinstance(e, Message) and e.trial_id == halted][-1] is Preempted
    assert driver.executor.can_launch({"cpu": 3})


def test_a_model_that_raises_fails_its_trial(simulate: Any) -> None:
    def model(config: Any) -> Iterator[tuple[float, dict[str, float]]]:
        yield 1.0, {"loss": 1.0}
        raise ValueError("on purpose")

    driver = simulate(model)
    trial = driver.launch()
    driver.finish(trial)
    assert [e.message for e in driver.errors(trial)] == ["on purpose"]


def test_run_once_jumps_ahead_by_the_timeout_and_never_hangs(simulate: Any) -> None:
    clock = VirtualClock(start=1000.0)
    driver = simulate(three_minutes, clock=clock)
    driver.executor.run_once(driver.dispatch, 10.0)
    assert (clock.monotonic(), clock.time()) == (10.0, 1010.0)
    driver.launch()
    driver.executor.run_once(driver.dispatch, None)
    driver.executor.run_once(driver.dispatch, 30.0)
    assert clock.monotonic() == 40.0
    assert [type(e) for e in driver.events] == [Started]
    driver.finish_all()
    with pytest.raises(RuntimeError, match="nothing will ever happen"):
        driver.executor.run_once(driver.dispatch, None)
    driver.executor.wake()
    driver.executor.run_once(driver.dispatch, None)


def test_a_hundred_thousand_trials_fit_into_one_test(tmp_path: Path) -> None:
    executor = SimulatedExecutor(lambda config: ((1.0, {"loss": config["x"]}),), slots=100)
    executor.start(None, temporary=tmp_path)
    total, launched, exited, count = 100_000, 0, 0, 0

    def dispatch(events: Any) -> None:
        nonlocal exited, count
        count += len(events)
        for event in events:
            if isinstance(event, Exited):
                exited += 1
            elif isinstance(event, Message) and isinstance(event.body, Report):
                executor.tell(event.trial_id, Answer())

    while exited < total:
        while launched < total and executor.can_launch({"cpu": 1.0}):
            job = Job(str(launched), "t", "e", launched, tmp_path, tmp_path, {"x": launched}, 1, 1, 1)
            executor.launch(Launch(job, {"cpu": 1.0}))
            launched += 1
        executor.run_once(dispatch, None)
    assert count == 4 * total
    assert executor.clock.monotonic() == 1000.0


def test_without_directories_nothing_lies_beside_the_journal_and_a_resume_goes_on(tmp_path: Path) -> None:
    def run(count: int) -> tune.ExperimentAnalysis:
        return tune.run(
            lambda config: None,
            name="many",
            config={"x": tune.uniform(0, 1)},
            metric="loss",
            mode="min",
            num_samples=count,
            storage_path=str(tmp_path),
            verbose=0,
            resume="AUTO",
            executor=SimulatedExecutor(lambda config: [(1.0, {"loss": config["x"]})] * 3, slots=2, directories=False),
        )

    before = [trial.last_result["loss"] for trial in run(5).trials]
    after = run(8)
    assert [trial.last_result["loss"] for trial in after.trials][:5] == before
    assert [trial.iteration for trial in after.trials] == [3] * 8
    assert {path.name for path in (tmp_path / "many").iterdir()} <= {
        "experiment.json", "generations", "journal", "blobs", ".events", "driver.log",
    }  # fmt: skip


class Saves(tune.Trainable):
    def step(self) -> dict[str, Any]:
        return {}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {}

    def load_checkpoint(self, checkpoint: Any) -> None:
        pass


class SavesNothing(tune.Trainable):
    def step(self) -> dict[str, Any]:
        return {}


def paused(path: Path, trainable: Any) -> tune.ExperimentAnalysis:
    return tune.run(
        trainable,
        name="e",
        config={"x": tune.grid_search(list(range(12)))},
        scheduler=HyperBandScheduler(metric="loss", mode="min", max_t=9),
        storage_path=path,
        verbose=0,
        time_budget_s=10_000,
        executor=SimulatedExecutor(lambda config: [(10.0, {"loss": float(config["x"])})] * 9, slots=2),
    )


def test_a_class_that_saves_is_refused_for_nothing_is_saved_here(tmp_path: Path) -> None:
    """A scheduler that pauses such a trial would see it begin anew, and pause it again, without end."""
    with pytest.raises(SettingError, match=r"class Saves cannot be simulated: .* saves nothing.* a function"):
        paused(tmp_path, Saves)


@pytest.mark.parametrize("trainable", [SavesNothing, lambda config: None], ids=["class", "function"])
def test_what_saves_nothing_is_never_paused(tmp_path: Path, trainable: Any) -> None:
    assert {(trial.status, trial.attempt) for trial in paused(tmp_path, trainable).trials} == {("TERMINATED", 1)}


@pytest.mark.parametrize(
    ("seconds", "result"), [*((each, {"loss": 1}) for each in (float("nan"), float("inf"), -1.0, "soon")), (1.0, None)]
)
@pytest.mark.parametrize("save", [None, lambda config: tune.executors.SimulatedSave()])
def test_a_result_that_never_comes_or_is_none_fails_its_trial_and_the_run_ends(
    tmp_path: Path, seconds: Any, result: Any, save: Any
) -> None:
    executor = SimulatedExecutor(lambda config: [(1.0, {"loss": 1}), (seconds, result)], save=save)
    with pytest.raises(tune.TuneError, match="1 of 1 trial failed"):
        tune.run(lambda config: None, name="e", storage_path=tmp_path, executor=executor, verbose=0)
    (trial,) = tune.ExperimentAnalysis(str(tmp_path / "e")).trials
    assert (trial.iteration, executor.clock.monotonic()) == (1, 1.0)


def test_a_save_that_is_no_function_is_refused_at_once() -> None:
    with pytest.raises(SettingError, match="save=5 is not accepted"):
        SimulatedExecutor(three_minutes, save=5)  # type: ignore[arg-type]
