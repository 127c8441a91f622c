"""An objective of Optuna is told from a trainable, and the two functions that it becomes run as they are shown."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from trainables.errors import InvalidSettingError
from trainables.runtime.objective import is_objective, two_functions


def objective(trial: Any) -> float:
    x = trial.suggest_float("x", -10, 10)
    kind = trial.suggest_categorical("kind", ["a", "b"])
    return float((x - 2) ** 2 + (kind == "a"))


def suggests_in_a_loop(trial: Any) -> float:
    return float(sum(trial.suggest_float(f"x{n}", 0, 1) for n in range(3)))


def asks_a_study(config: dict[str, Any]) -> float:
    study: Any = config["study"]
    trial = study.ask()
    return float(trial.suggest_float("x", 0, 1))


def no_config() -> float:
    return 0.5


@functools.wraps(objective)
def wrapped(*args: Any) -> Any:
    return objective(*args)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (objective, True),
        (wrapped, True),
        (lambda trial: trial.suggest_int("n", 0, 3), True),
        (lambda t: [t.suggest_int("n", 0, 3) + k for k in (1, 2)], True),
        (asks_a_study, False),
        (no_config, False),
        (lambda config: config.suggestion, False),
        (len, False),
    ],
)
def test_an_objective_asks_its_argument_for_suggestions(function: Any, expected: bool) -> None:
    assert is_objective(function) is expected


def test_the_two_functions_run_as_they_are_shown(tmp_path: Path) -> None:
    shown = two_functions(objective)
    assert len(shown.splitlines()) <= 20 and shown.startswith("objective is an objective of Optuna")
    code = shown.split("\n", 1)[1].replace("...  ", 'value = (x - 2) ** 2 + (kind == "a")')
    code = code.replace("num_samples=100", "num_samples=3, **settings")
    from tuner.search.optuna import OptunaSearch

    settings = {"storage_path": tmp_path, "executor": "inline", "verbose": 0}
    found: dict[str, Any] = {"tune": tune, "OptunaSearch": OptunaSearch, "settings": settings}
    exec(code.replace("tune.run(", "analysis = tune.run("), found)
    trials = found["analysis"].trials
    assert [trial.last_result["value"] for trial in trials] == [objective(FixedTrial(trial.config)) for trial in trials]


class FixedTrial:
    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def suggest_float(self, name: str, *bounds: float) -> Any:
        return self.config[name]

    suggest_categorical: Any = suggest_float


def test_where_the_suggestions_are_not_plain_an_example_stands_for_them() -> None:
    assert is_objective(lambda trial: trial.suggest_float("x", 0, 1))
    assert 'trial.suggest_float("x", 0, 1)' in two_functions(suggests_in_a_loop)


def test_pruning_becomes_a_scheduler() -> None:
    def prunes(trial: Any) -> float:
        x = trial.suggest_float("x", 0, 1)
        trial.report(x, 1)
        return float("nan") if trial.should_prune() else float(x)

    assert two_functions(prunes).count("ASHAScheduler()") == 1 and "trial.should_prune" in two_functions(prunes)
    assert "ASHAScheduler" not in two_functions(objective)


def test_an_objective_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match="def space.trial(.|\n)*def train.config(.|\n)*OptunaSearch"):
        tune.run(objective, storage_path=tmp_path / "results")
    assert not (tmp_path / "results").exists()
