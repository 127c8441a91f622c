"""Loggers of a user, and the default ones."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.logger import CSVLoggerCallback, JsonLoggerCallback, LoggerCallback, default_loggers


def test_a_users_logger_replaces_the_default_one() -> None:
    class Mine(JsonLoggerCallback):
        pass

    kinds = [type(each) for each in default_loggers([Mine()])]

    assert JsonLoggerCallback not in kinds
    assert CSVLoggerCallback in kinds


@pytest.mark.parametrize(
    ("variable", "left"),
    [
        ("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", {"ErrorFileCallback"}),
        ("TUNE_DISABLE_TENSORBOARD", {"ErrorFileCallback", "CSVLoggerCallback", "JsonLoggerCallback"}),
    ],
)
def test_default_loggers_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, variable: str, left: set[str]) -> None:
    monkeypatch.setenv(variable, "1")

    assert {type(each).__name__ for each in default_loggers([])} == left


def test_a_logger_of_ones_own_gets_the_trials_life(lab: Any) -> None:
    said: list[str] = []

    class Saying(LoggerCallback):
        def log_trial_start(self, trial: Any) -> None:
            said.append("start")

        def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
            said.append(f"result {result['training_iteration']}")

        def log_trial_end(self, trial: Any, failed: bool = False) -> None:
            said.append(f"end {failed}")

    run = lab(Saying())
    trial = run.trial()
    run.report(trial, loss=1)
    run.report(trial, loss=1)
    run.rollback(trial, 1)
    run.report(trial, loss=1)
    run.end(trial)

    assert said == ["start", "result 1", "result 2", "end False"], "told of iteration 2 once: it cannot take back"
