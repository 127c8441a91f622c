"""Optuna searchers that are driven by hand."""

from __future__ import annotations

from typing import Any

import optuna

import tuner as tune
from tuner.search import Searcher, as_searcher
from tuner.search.optuna import OptunaSearch

SPACE: dict[str, Any] = {
    "u": tune.uniform(-1, 1),
    "qu": tune.quniform(0, 0.7, 0.1),
    "lu": tune.loguniform(1e-4, 1),
    "qlu": tune.qloguniform(0.1, 10, 0.1),
    "n": tune.randn(3, 2),
    "qn": tune.qrandn(0, 1, 0.25),
    "i": tune.randint(0, 4),
    "qi": tune.qrandint(3, 21, 4),
    "li": tune.lograndint(1, 100),
    "qli": tune.qlograndint(8, 64, 8),
    "c": tune.choice(["a", 1, None]),
    "objects": tune.choice([{"k": 1}, [2, 3], len]),
    "same": tune.choice([1, True, 1.0]),
    "branch": tune.choice([{"kind": "x"}, {"kind": "y", "deep": {"z": tune.uniform(5, 6)}}]),
    "list": [tune.uniform(0, 1), ("fixed", tune.randint(0, 3))],
    "function": tune.sample_from(lambda spec: spec.config.u * 2),
    "constant": 17,
}


def make(space: Any = None, *, samples: int = 40, run_space: Any = None, **kwargs: Any) -> Searcher:
    own = {} if "metric" in kwargs else {"metric": "loss", "mode": "min"}
    searcher = OptunaSearch(space, **{**own, **kwargs})
    return as_searcher(searcher, SPACE if run_space is None else run_space, num_samples=samples, seed=5)


def study_of(searcher: Any) -> optuna.Study:
    study: optuna.Study = searcher._ready()
    return study


def finish(searcher: Searcher, name: str, loss: Any, iteration: int = 1) -> None:
    result = {"training_iteration": iteration, "loss": loss}
    searcher.on_trial_result(name, result)
    searcher.on_trial_complete(name, result)


def drive(searcher: Searcher, count: int, start: int = 0) -> list[dict[str, Any]]:
    configs = []
    for number in range(start, start + count):
        config = searcher.suggest(f"t{number}")
        assert isinstance(config, dict)
        configs.append(config)
        finish(searcher, f"t{number}", abs(config["u"]))
    return configs


def by_run(trial: Any) -> dict[str, Any]:
    kind = trial.suggest_categorical("kind", ["linear", "deep"])
    if kind == "deep":
        trial.suggest_int("model/depth", 1, 5)
    trial.suggest_float("u", -1, 1)
    return {"constant": 3}
