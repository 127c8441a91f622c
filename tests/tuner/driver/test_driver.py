"""One driver's life, end to end on the simulated executor: begun, killed or halted, taken up, left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tuner.error import TrialsFailedError
from tuner.executors import SimulatedExecutor


def train(config: dict[str, Any]) -> None:
    """The model says what happens."""


def three(config: dict[str, Any]) -> Iterator[tuple[float, dict[str, Any]]]:
    for step in range(3):
        yield 60.0, {"loss": config["x"] / (step + 1)}


def run(path: Path, *, model: Any = three, slots: int = 2, **settings: Any) -> tune.ExperimentAnalysis:
    executor = SimulatedExecutor(model, slots=slots)
    defaults: dict[str, Any] = {"config": {"x": tune.uniform(0, 1)}, "name": "e", "verbose": 0, "seed": 1}
    return tune.run(train, storage_path=path, executor=executor, **{**defaults, **settings})


class Setup(tune.Callback):
    """Remembers what it was set up with, and what ended."""

    def __init__(self) -> None:
        self.info: dict[str, Any] = {}
        self.ended = False

    def setup(self, **info: Any) -> None:
        self.info = info

    def on_experiment_end(self, **info: Any) -> None:
        self.ended = True


@pytest.mark.parametrize(
    ("config", "num_samples", "total"),
    [
        ({"x": tune.uniform(0, 1)}, 3, 3),
        ({"x": tune.grid_search([1, 2, 3])}, 1, 3),
        ({"x": tune.grid_search([1, 2, 3]), "y": tune.grid_search([1, 2])}, 2, 12),
    ],
)
def test_callbacks_hear_how_many_trials_there_will_be(
    config: dict[str, Any], num_samples: int, total: int, tmp_path: Path
) -> None:
    callback = Setup()
    analysis = run(tmp_path, config=config, num_samples=num_samples, callbacks=[callback])
    assert (callback.info["num_samples"], callback.info["total_num_samples"]) == (num_samples, total)
    assert len(analysis.trials) == total and callback.ended


def test_an_interrupted_run_goes_on_to_the_same_end(tmp_path: Path) -> None:
    class Interrupts(tune.Callback):
        def on_trial_result(self, trials: Any, **info: Any) -> None:
            if len(trials) >= 3:
                raise InterruptedError

    whole = run(tmp_path / "whole", num_samples=5)
    with pytest.raises(InterruptedError):
        run(tmp_path / "cut", num_samples=5, callbacks=[Interrupts()])
    resumed = run(tmp_path / "cut", num_samples=5, resume=True)
    for one, other in zip(whole.trials, resumed.trials, strict=True):
        assert (one.config, one.status, one.iteration) == (other.config, other.status, other.iteration)


def test_failed_trials_are_named_after_the_others_have_ended(tmp_path: Path) -> None:
    def fails(config: dict[str, Any]) -> Iterator[tuple[float, dict[str, Any]]]:
        yield 1.0, {"loss": 1.0}
        if config["x"] == 2:
            raise ValueError("two")

    with pytest.raises(TrialsFailedError, match="(?s)1 of 3 trials failed: train_.*ValueError: two") as caught:
        run(tmp_path, model=fails, config={"x": tune.grid_search([1, 2, 3])})
    assert [trial.status for trial in caught.value.analysis.trials] == ["TERMINATED", "ERROR", "TERMINATED"]


def test_fail_fast_may_raise_what_the_trial_raised(tmp_path: Path) -> None:
    def fails(config: dict[str, Any]) -> Iterator[tuple[float, dict[str, Any]]]:
        raise ValueError("no")
        yield

    with pytest.raises(tune.error.TrialError, match="ValueError: no"):
        run(tmp_path, model=fails, fail_fast="raise")


def test_a_run_that_is_halted_says_how_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    analysis = run(tmp_path, num_samples=9, time_budget_s=100.0, verbose=1)
    assert {trial.status for trial in analysis.trials} >= {"PENDING"}
    said = capsys.readouterr().out
    assert "ended early (budget); to continue: the same call with name='e' and resume=\"AUTO\"" in said
