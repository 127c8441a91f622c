"""LightGBM with the real library: reported round by round, killed and continued."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest

import trainables as train
import tuner as tune
from tests.trainables.killing import die_once
from trainables.errors import CheckpointNotFoundError, InvalidSettingError, MetricError, SessionError
from trainables.lightgbm import RayTrainReportCallback
from tuner.integration.lightgbm import TuneReportCallback, TuneReportCheckpointCallback

X = np.random.default_rng(0).normal(size=(200, 5))
Y = (X[:, 0] * X[:, 1] > 0).astype(int)
PARAMETERS = {
    "objective": "binary",
    "metric": ["binary_logloss", "binary_error"],
    "num_threads": 1,
    "deterministic": True,
    "verbose": -1,
}


def boosted(rounds: int, *callbacks: Any, model: Any = None) -> Any:
    data = lightgbm.Dataset(X, Y)
    return lightgbm.train(
        PARAMETERS, data, rounds, valid_sets=[data], valid_names=["train"], init_model=model, callbacks=list(callbacks)
    )


def run(function: Any, path: Path, **settings: Any) -> Any:
    settings = {"executor": "inline", "verbose": 0, **settings}
    (trial,) = tune.run(function, storage_path=path, name="e", **settings).trials
    return trial


def rows(trial: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(trial.path, "result.json").read_text().splitlines()]


def saved(trial: Any) -> list[str]:
    return sorted(path.parent.name for path in Path(trial.path).glob("checkpoint_*/.manifest.json"))


def test_a_trial_that_is_killed_ends_with_the_model_of_one_that_was_not(tmp_path: Path) -> None:
    def dies(env: Any) -> None:
        if env.iteration in (5, 9):
            die_once(tmp_path, str(env.iteration))

    def fit(config: dict[str, Any]) -> None:
        checkpoint = train.get_checkpoint()
        model = RayTrainReportCallback.get_model(checkpoint) if checkpoint else None
        left = 10 - (model.current_iteration() if model else 0)
        if left:
            boosted(left, RayTrainReportCallback({"loss": "train-binary_logloss"}, frequency=3), dies, model=model)

    trial = run(fit, tmp_path, executor="local", max_failures=2, keep_checkpoints_num=1)

    assert trial.num_failures == 2
    straight: dict[str, Any] = {}
    whole = boosted(10, lightgbm.record_evaluation(straight))
    model = RayTrainReportCallback.get_model(trial.checkpoint)
    assert model.current_iteration() == 10
    np.testing.assert_array_equal(model.predict(X), whole.predict(X))
    assert [row["loss"] for row in rows(trial)] == straight["train"]["binary_logloss"]


def test_every_metric_is_reported_and_checkpoints_come_in_their_turn(tmp_path: Path) -> None:
    trial = run(lambda config: boosted(5, TuneReportCheckpointCallback(frequency=2)), tmp_path)

    assert {"train-binary_logloss", "train-binary_error"} <= set(trial.last_result)
    assert len(rows(trial)) == 5
    assert saved(trial) == ["checkpoint_000002", "checkpoint_000004", "checkpoint_000005"]
    with pytest.raises(CheckpointNotFoundError, match=r"holds no other; its files: model\.txt"):
        RayTrainReportCallback.get_model(trial.checkpoint, "other")


def test_one_that_only_reports_saves_nothing_and_metrics_can_be_made(tmp_path: Path) -> None:
    callback = TuneReportCallback("train-binary_error", lambda metrics: {"accuracy": 1 - metrics["train-binary_error"]})

    trial = run(lambda config: boosted(2, callback), tmp_path)

    assert 0.5 < trial.last_result["accuracy"] <= 1
    assert len(rows(trial)) == 2
    assert not saved(trial)


def test_the_folds_of_cv_are_reported_as_mean_and_deviation(tmp_path: Path) -> None:
    def fit(config: dict[str, Any]) -> None:
        data = lightgbm.Dataset(X, Y)
        lightgbm.cv(PARAMETERS, data, 3, nfold=2, callbacks=[RayTrainReportCallback()], stratified=False)

    trial = run(fit, tmp_path)

    assert 0 <= trial.last_result["valid-binary_error-mean"] <= 1
    assert trial.last_result["valid-binary_error-stdv"] >= 0
    assert not saved(trial)


def test_a_training_that_is_stopped_early_has_the_checkpoints_of_its_frequency(tmp_path: Path) -> None:
    def fit(config: dict[str, Any]) -> None:
        data = lightgbm.Dataset(X[:100], Y[:100])
        held_out = data.create_valid(X[100:], Y[100:])
        stopping = lightgbm.early_stopping(1, min_delta=10.0, verbose=False)
        callbacks = [RayTrainReportCallback(frequency=1), stopping]
        lightgbm.train(PARAMETERS, data, 10, valid_sets=[held_out], callbacks=callbacks)

    trial = run(fit, tmp_path)

    assert len(rows(trial)) == len(saved(trial)) == 2


def test_a_metric_that_is_not_evaluated_is_named_with_the_nearest() -> None:
    with pytest.raises(MetricError, match="'train-binary_error'"):
        boosted(1, RayTrainReportCallback("trainbinary_error"))
    with pytest.raises(InvalidSettingError, match="frequency"):
        RayTrainReportCallback(frequency=-1)
    with pytest.raises(InvalidSettingError, match="metrics=3 is not accepted"):
        RayTrainReportCallback(3)
    with pytest.raises(SessionError, match="outside a trial"):
        boosted(1, RayTrainReportCallback())
    with pytest.raises(ImportError, match=r"LightGBMTrainer is not here: call lightgbm\.train in a function"):
        from trainables.lightgbm import LightGBMTrainer  # noqa: F401
