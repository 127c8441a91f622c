"""A searcher or scheduler that a run has used is refused by another run; a stopper begins again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tuner.error import SettingError
from tuner.schedulers import ASHAScheduler
from tuner.search import BasicVariantGenerator, ConcurrencyLimiter
from tuner.search.optuna import OptunaSearch
from tuner.stopper import CostStopper, ExperimentPlateauStopper, MaximumIterationStopper


def train(config: dict[str, Any]) -> None:
    for step in range(3):
        tune.report({"loss": config["x"] + step})


def run(path: Path, name: str, **settings: Any) -> list[Any]:
    given: dict[str, Any] = {
        "config": {"x": tune.uniform(0, 1)},
        "metric": "loss",
        "mode": "min",
        "num_samples": 3,
        "seed": 1,
    }
    analysis = tune.run(train, name=name, storage_path=path, executor="inline", verbose=0, **(given | settings))
    return [(trial.config, trial.last_result["training_iteration"]) for trial in analysis.trials]


MADE: dict[str, Callable[[], dict[str, Any]]] = {
    "BasicVariantGenerator": lambda: {"search_alg": BasicVariantGenerator()},
    "OptunaSearch": lambda: {"search_alg": OptunaSearch(points_to_evaluate=[{"x": 0.5}])},
    "limited": lambda: {"search_alg": ConcurrencyLimiter(OptunaSearch(), 2)},
    "AsyncHyperBandScheduler": lambda: {"scheduler": ASHAScheduler()},
    "CostStopper": lambda: {"stop": CostStopper(20.0, "training_iteration")},
    "in a list": lambda: {"stop": [CostStopper(20.0, "training_iteration"), {"training_iteration": 2}]},
}


@pytest.mark.parametrize("kind", [kind for kind, make in MADE.items() if "stop" not in make()])
def test_another_run_refuses_it_and_creates_nothing(kind: str, tmp_path: Path) -> None:
    settings = MADE[kind]()
    run(tmp_path, "first", **settings)
    with pytest.raises(SettingError, match=r"\(\.\.\.\) was used by another run, .*make a new"):
        run(tmp_path, "second", **settings)
    assert not (tmp_path / "second").exists()
    assert run(tmp_path, "second", **MADE[kind]()) == run(tmp_path, "first", **MADE[kind](), resume=True)


class Ends(tune.Callback):
    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        raise InterruptedError


@pytest.mark.parametrize("kind", MADE)
def test_the_same_run_resumes_with_it(kind: str, tmp_path: Path) -> None:
    settings = MADE[kind]()
    with pytest.raises(InterruptedError):
        run(tmp_path, "first", **settings, callbacks=[Ends()])
    assert run(tmp_path, "first", **settings, resume=True) == run(tmp_path, "second", **MADE[kind]())


@pytest.mark.parametrize(
    "make",
    [
        MADE["CostStopper"],
        MADE["in a list"],
        lambda: {"scheduler": tune.schedulers.FIFOScheduler(), "stop": MaximumIterationStopper(2)},
        lambda: {"stop": ExperimentPlateauStopper("loss", mode="min", top=2, patience=0)},
    ],
)
def test_a_stopper_serves_several_runs(make: Callable[[], dict[str, Any]], tmp_path: Path) -> None:
    settings = make()
    first = run(tmp_path, "first", **settings)
    assert run(tmp_path, "second", **settings) == first
