"""Schedulers that pause, in whole runs: nobody pauses without a checkpoint, repeats a step or waits for ever."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.failures.checkpoint_faults import in_child
from tuner.schedulers import ASHAScheduler, HyperBandForBOHB, HyperBandScheduler, MedianStoppingRule, TrialScheduler

BEST = 20


class Steps(tune.Trainable):
    """Its score is its rate; its steps are counted across pauses."""

    def setup(self, config: dict[str, Any]) -> None:
        self.steps = 0

    def step(self) -> dict[str, Any]:
        self.steps += 1
        return {"acc": self.config["rate"], "steps": self.steps}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.steps = checkpoint["steps"]


def every_fourth(config: dict[str, Any]) -> None:
    """A function that saves at every fourth report only, and ends by itself at the end."""
    step = 0
    if (checkpoint := tune.get_checkpoint()) is not None:
        step = int(checkpoint.to_dict()["step"])
    while step < BEST:
        step += 1
        saved = tune.Checkpoint.from_dict({"step": step}) if step % 4 == 0 else None
        tune.report({"acc": config["rate"], "steps": step}, checkpoint=saved)


def run(path: Path, trainable: Any, scheduler: TrialScheduler, trials: int, **settings: Any) -> Any:
    chosen = {"executor": "inline", "verbose": 0, "name": "e", "metric": "acc", "mode": "max", **settings}
    rates = {"rate": tune.grid_search([float(rate) for rate in range(trials)])}
    return tune.run(trainable, storage_path=path, scheduler=scheduler, config=rates, **chosen).trials


def rows(trial: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(trial.path, "result.json").read_text().splitlines()]


def check(trials: Any) -> None:
    """Everybody has ended, and every step was made and told once."""
    for trial in trials:
        assert trial.status == "TERMINATED"
        assert [row["training_iteration"] for row in rows(trial)] == list(range(1, trial.iteration + 1))
        assert [row["steps"] for row in rows(trial)] == list(range(1, trial.iteration + 1))


PAUSING: dict[str, Callable[[], TrialScheduler]] = {
    "hyperband": lambda: HyperBandScheduler(max_t=9),
    "hyperband for bohb": lambda: HyperBandForBOHB(max_t=9),
    "asha, promotion": lambda: ASHAScheduler(max_t=9, reduction_factor=3, type="promotion"),
    "median": lambda: MedianStoppingRule("training_iteration", grace_period=2, hard_stop=False),
}


@pytest.mark.parametrize("make", PAUSING.values(), ids=PAUSING)
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("trials", [2, 17])
def test_f26_a_function_that_saves_at_every_fourth_report(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Callable[[], TrialScheduler], workers: int, trials: int
) -> None:
    with caplog.at_level(logging.WARNING):
        ended = run(tmp_path, every_fourth, make(), trials, max_concurrent_trials=workers)
    check(ended)
    assert len(ended) == trials
    assert "that wait" not in caplog.text
    assert ended[-1].iteration >= 9


@pytest.mark.parametrize("make", PAUSING.values(), ids=PAUSING)
def test_a_searcher_that_counts_those_that_wait_stalls_nobody(
    tmp_path: Path, make: Callable[[], TrialScheduler]
) -> None:
    search = tune.search.BasicVariantGenerator(max_concurrent=2)
    ended = run(tmp_path, Steps, make(), 7, search_alg=search, stop={"training_iteration": 9})
    check(ended)
    assert len(ended) == 7


# Brackets of 3, 5 and 9 trials. Of the second one the best two go on from 3, of the third one three from 1 and one from
# 3, whose rates are the highest.
HALVED = [9, 9, 9] + [3, 3, 3, 9, 9] + [1, 1, 1, 1, 1, 1, 3, 3, 9]
# The bracket of 9 is the first one.
HALVED_FOR_BOHB = [1, 1, 1, 1, 1, 1, 3, 3, 9] + [3, 3, 3, 9, 9] + [9, 9, 9]


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize(
    ("kind", "expected"), [(HyperBandScheduler, HALVED), (HyperBandForBOHB, HALVED_FOR_BOHB)], ids=["plain", "bohb"]
)
def test_a_band_of_hyperband(tmp_path: Path, kind: type[HyperBandScheduler], expected: list[int], workers: int) -> None:
    ended = run(tmp_path, Steps, kind(max_t=9), 17, max_concurrent_trials=workers)
    check(ended)
    assert [trial.iteration for trial in ended] == expected


class Die(tune.Callback):
    """Kills the driver at its n-th result."""

    changes_results = False

    def __init__(self, results: int) -> None:
        self._left = results

    def __reduce__(self) -> Any:
        return tune.Callback, ()

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
        self._left -= 1
        if not self._left:
            os._exit(9)


@pytest.mark.parametrize(
    ("make", "trials"),
    [
        (lambda: HyperBandScheduler(max_t=9), 17),
        (lambda: ASHAScheduler(max_t=9, reduction_factor=3, type="promotion"), 12),
        (lambda: MedianStoppingRule("training_iteration", grace_period=2, hard_stop=False), 6),
    ],
    ids=["hyperband", "asha, promotion", "median"],
)
def test_d12_t03_a_run_that_is_killed_again_and_again_decides_as_one_that_is_not(
    tmp_path: Path, make: Callable[[], TrialScheduler], trials: int
) -> None:
    def once(path: Path, callbacks: list[Any]) -> Any:
        stop = {"training_iteration": 9}
        return run(path, Steps, make(), trials, resume="AUTO", callbacks=callbacks, max_concurrent_trials=1, stop=stop)

    whole = once(tmp_path / "whole", [])
    check(whole)
    for results in (4, 9, 2, 13, 7):
        assert in_child(lambda results=results: once(tmp_path / "cut", [Die(results)])) == 9 << 8  # type: ignore[misc]
    cut = once(tmp_path / "cut", [])
    check(cut)
    assert [trial.iteration for trial in cut] == [trial.iteration for trial in whole]
