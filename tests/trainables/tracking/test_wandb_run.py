"""Weights & Biases within a trial."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tuner as tune

wandb = pytest.importorskip("wandb")

from tests.tuner.tracking.test_wandb import config_of, history, run  # noqa: E402
from trainables.tracking.wandb_run import WandbTrainableMixin, setup_wandb, wandb_mixin  # noqa: E402


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")  # its threads for telemetry never end
    yield
    wandb.teardown()  # what it keeps of the environment is not for the tests that follow


def file_of(tmp_path: Path, trial: Any) -> Path:
    """Return the file of a trial's run. The process of wandb may write it after `finish()`, so it is ended first."""
    wandb.teardown()
    (file,) = tmp_path.glob(f"wandb/*{trial.trial_id}/*.wandb")
    return file


def test_a_function_has_its_own_run_in_the_trial(tmp_path: Path) -> None:
    def trainable(config: dict[str, Any]) -> None:
        own = setup_wandb(config, project="p", dir=str(tmp_path))
        own.log({"loss": 1.0}, step=1)
        tune.report(loss=1.0)
        own.finish()

    (trial,) = run(tmp_path, trainable, config={"lr": 2}).trials
    file = file_of(tmp_path, trial)
    (started, config) = config_of(file)
    assert (started.run_id, started.run_group, config["lr"]) == (trial.trial_id, "tracked", 2)


def test_a_decorated_function_may_call_wandb(tmp_path: Path) -> None:
    @wandb_mixin
    def decorated(config: dict[str, Any]) -> None:
        wandb.log({"loss": config["lr"]}, step=3)
        tune.report(loss=1.0)

    (trial,) = run(tmp_path, decorated, config={"lr": 2, "wandb": {"project": "q", "dir": str(tmp_path)}}).trials
    file = file_of(tmp_path, trial)
    assert [(line["_step"], line["loss"]) for line in history(file)] == [(3, 2)]
    assert (config_of(file)[0].project, config_of(file)[0].run_group) == ("q", "decorated")


def test_a_class_has_a_run_of_its_own(tmp_path: Path) -> None:
    class Own(WandbTrainableMixin, tune.Trainable):
        def step(self) -> dict[str, Any]:
            assert "wandb" not in self.config
            self.wandb.log({"loss": 4.0})
            return {"loss": 4.0, "done": True}

    (trial,) = run(tmp_path, Own, config={"lr": 2, "wandb": {"project": "q", "dir": str(tmp_path)}}).trials
    assert trial.status == "TERMINATED"
    file = file_of(tmp_path, trial)
    assert [line["loss"] for line in history(file)] == [4.0]


def test_settings_that_are_missing_are_named() -> None:
    with pytest.raises(ValueError, match='"project"'):
        wandb_mixin(lambda config: None)({"lr": 1})
