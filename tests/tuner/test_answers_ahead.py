"""Runs in processes whose trials do not wait for answers: nothing is lost, and what is decided late holds."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tuner as tune
from tests.tuner.odd_values import RESULTS, reported, said
from tuner.experiment.trial import Trial
from tuner.schedulers import ASHAScheduler


def saving(config: dict[str, Any]) -> None:
    for step in range(60):
        with tune.checkpoint_dir() as directory:
            Path(directory, "step").write_text(str(step + 1))
        tune.report(loss=1 / (step + 1))


def counting(config: dict[str, Any]) -> None:
    for step in range(3000):
        tune.report(step=step, x=config["x"])


def endless(config: dict[str, Any]) -> None:
    for step in itertools.count(1):
        with tune.checkpoint_dir() as directory:
            Path(directory, "step").write_text(str(step))
        tune.report(step=step)
        time.sleep(0.01)


class Ends(tune.Callback):
    """Ends the trial; it hears of results and may change them, so that they wait."""

    def on_trial_result(self, result: dict[str, Any], **info: Any) -> None:
        if result["training_iteration"] == 5:
            result["done"] = True


def checkpoints(trial: Trial) -> list[str]:
    return sorted(name for name in os.listdir(trial.directory) if "checkpoint" in name or "staging" in name)


def test_what_comes_after_an_order_to_stop_is_neither_a_result_nor_a_checkpoint(tmp_path: Path) -> None:
    def order() -> None:
        while True:
            try:
                (trial,) = tune.open_experiment(tmp_path / "e").trials
            except (tune.TuneError, ValueError):
                continue  # it has not begun
            if trial.iteration > 5:
                tune.open_experiment(tmp_path / "e").stop(trial.trial_id)
                return

    ordering = threading.Thread(target=order)
    ordering.start()
    analysis = tune.run(endless, storage_path=str(tmp_path), verbose=0, name="e")
    ordering.join()
    (trial,), (results,) = analysis.trials, analysis.trial_dataframes.values()
    assert trial.status == "TERMINATED" and trial.end_reason.by == "you"
    assert list(results["step"]) == list(range(1, trial.iteration + 1))
    assert checkpoints(trial) == [f"checkpoint_{number:06d}" for number in range(1, trial.iteration + 1)]


def test_a_callback_that_ends_a_trial_ends_it_with_that_very_result(tmp_path: Path) -> None:
    (trial,) = tune.run(saving, storage_path=str(tmp_path), verbose=0, callbacks=[Ends()], name="e").trials
    assert trial.status == "TERMINATED" and trial.iteration == 5 and trial.end_reason.by == "a callback"
    names = checkpoints(trial)
    assert names == [f"checkpoint_{number:06d}" for number in range(1, 6)]
    assert (trial.directory / names[-1] / "step").read_text() == "5"


def test_every_result_of_trials_that_do_not_wait_is_there_once_in_order(tmp_path: Path) -> None:
    analysis = tune.run(
        counting, config={"x": tune.grid_search([1, 2])}, storage_path=str(tmp_path), verbose=0, name="e"
    )
    for frame in analysis.trial_dataframes.values():
        assert list(frame["step"]) == list(range(3000))


@pytest.mark.parametrize("stops", [{"stop": {"training_iteration": 7}}, {"scheduler": ASHAScheduler(max_t=7)}])
def test_a_trial_ends_with_the_very_result_that_ends_it(stops: dict[str, Any], tmp_path: Path) -> None:
    (trial,) = tune.run(
        saving, storage_path=str(tmp_path), verbose=0, metric="loss", mode="min", name="e", **stops
    ).trials
    assert trial.status == "TERMINATED" and trial.iteration == 7 and len(trial.checkpoints) == 7


class Looks(tune.Callback):
    """It might change a result, so that all wait for their answer."""

    def on_trial_result(self, **info: Any) -> None:
        pass


STEPS = st.lists(
    st.tuples(RESULTS, st.booleans(), st.sampled_from([0, 0, 1_000, 20_000, 40_000])), min_size=1, max_size=8
)
"""Results one after the other, a save or none, and how many bytes the next result has besides."""


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEPS, min_size=3, max_size=3))
def test_whatever_is_reported_and_saved_is_the_same_with_and_without_waiting(lives: list[Any]) -> None:
    def train(config: dict[str, Any]) -> None:
        errors = []
        for results, saves, size in lives[config["life"]]:
            errors += said(tune.report, results)
            if saves:
                with tune.checkpoint_dir() as directory:
                    Path(directory, "said").write_text(json.dumps(errors))
            tune.report(pad="x" * size, last=1)
        Path(tune.get_trial_dir(), "errors").write_text(json.dumps(errors))

    def told(storage: str, callbacks: list[tune.Callback]) -> list[Any]:
        analysis = tune.run(
            train, config={"life": tune.grid_search([0, 1, 2])}, storage_path=storage, callbacks=callbacks, name="e",
            verbose=0,
        )  # fmt: skip
        return [
            (
                [trial.status, trial.iteration, (trial.directory / "errors").read_text()],
                reported(Path(storage), "e", trial.trial_id),
                {name: (trial.directory / name / "said").read_text() for name in checkpoints(trial)},
            )
            for trial in analysis.trials
        ]

    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        assert told(one, []) == told(two, [Looks()])
