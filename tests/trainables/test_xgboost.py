"""XGBoost with the real library: reported round by round, killed and continued."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost

import trainables as train
import tuner as tune
from tests.trainables.killing import die_once
from trainables.errors import CheckpointNotFoundError, InvalidSettingError, MetricError, SessionError
from trainables.xgboost import RayTrainReportCallback
from tuner.integration.xgboost import TuneReportCallback, TuneReportCheckpointCallback

X = np.random.default_rng(0).normal(size=(200, 5))
Y = (X[:, 0] * X[:, 1] > 0).astype(int)
PARAMETERS = {
    "objective": "binary:logistic",
    "max_depth": 3,
    "nthread": 1,
    "eval_metric": ["logloss", "error"],
}


def boosted(rounds: int, *callbacks: Any, model: Any = None) -> Any:
    data = xgboost.DMatrix(X, Y)
    return xgboost.train(
        PARAMETERS, data, rounds, evals=[(data, "train")], xgb_model=model, callbacks=callbacks, verbose_eval=False
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
    class Dies(xgboost.callback.TrainingCallback):  # type: ignore[misc, name-defined]
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            if model.num_boosted_rounds() == 6:
                die_once(tmp_path)
            return False

    def fit(config: dict[str, Any]) -> None:
        checkpoint = train.get_checkpoint()
        model = RayTrainReportCallback.get_model(checkpoint) if checkpoint else None
        left = 10 - (model.num_boosted_rounds() if model else 0)
        boosted(left, RayTrainReportCallback({"loss": "train-logloss"}, frequency=3), Dies(), model=model)

    trial = run(fit, tmp_path, executor="local", max_failures=1, keep_checkpoints_num=1)

    assert trial.num_failures == 1
    straight: dict[str, Any] = {}
    data = xgboost.DMatrix(X, Y)
    whole = xgboost.train(PARAMETERS, data, 10, evals=[(data, "train")], evals_result=straight, verbose_eval=False)
    model = RayTrainReportCallback.get_model(trial.checkpoint)
    assert model.get_dump() == whole.get_dump()
    losses = [row["loss"] for row in rows(trial)]
    assert losses[:3] + losses[-5:-1] == straight["train"]["logloss"][:3] + straight["train"]["logloss"][-4:]
    assert losses[-1] == losses[-2]  # once more, with the model


def test_every_metric_is_reported_and_the_last_round_saved_once(tmp_path: Path) -> None:
    trial = run(lambda config: boosted(4, TuneReportCheckpointCallback(frequency=2)), tmp_path)

    assert {"train-logloss", "train-error"} <= set(trial.last_result)
    assert len(rows(trial)) == 4
    assert saved(trial) == ["checkpoint_000002", "checkpoint_000004"]


def test_under_the_older_name_every_fifth_round_is_saved(tmp_path: Path) -> None:
    assert saved(run(lambda config: boosted(7, TuneReportCheckpointCallback()), tmp_path)) == [
        "checkpoint_000005",
        "checkpoint_000008",  # the end, which is known after the last round's report only
    ]


def test_without_a_frequency_the_end_is_saved_under_the_name_given(tmp_path: Path) -> None:
    callback = RayTrainReportCallback("train-error", filename="model.json")

    trial = run(lambda config: boosted(3, callback), tmp_path)

    assert [sorted(key for key in row if key.startswith("train-")) for row in rows(trial)] == [["train-error"]] * 4
    assert saved(trial) == ["checkpoint_000004"]
    assert RayTrainReportCallback.get_model(trial.checkpoint, "model.json").num_boosted_rounds() == 3
    with pytest.raises(CheckpointNotFoundError, match=r"holds no model\.ubj; its files: model\.json"):
        RayTrainReportCallback.get_model(trial.checkpoint)


def test_one_that_only_reports_saves_nothing_and_metrics_can_be_made(tmp_path: Path) -> None:
    callback = TuneReportCallback(["train-error"], lambda metrics: {"accuracy": 1 - metrics["train-error"]})

    trial = run(lambda config: boosted(2, callback), tmp_path)

    assert 0.5 < trial.last_result["accuracy"] <= 1
    assert len(rows(trial)) == 2
    assert not saved(trial)


def test_the_folds_of_cv_are_reported_as_mean_and_deviation(tmp_path: Path) -> None:
    def fit(config: dict[str, Any]) -> None:
        xgboost.cv(PARAMETERS, xgboost.DMatrix(X, Y), 3, nfold=2, callbacks=[RayTrainReportCallback("test-error")])

    trial = run(fit, tmp_path)

    mean, deviation = trial.last_result["test-error"]
    assert 0 <= mean <= 1
    assert deviation >= 0
    assert not saved(trial)


def test_a_metric_that_is_not_evaluated_is_named_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(MetricError, match="'train-logloss'"):
        boosted(1, RayTrainReportCallback("trainlogloss"))
    with pytest.raises(InvalidSettingError, match="frequency"):
        RayTrainReportCallback(frequency=-1)
    with pytest.raises(InvalidSettingError, match="metrics=3 is not accepted"):
        RayTrainReportCallback(3)
    with pytest.raises(SessionError, match="outside a trial"):
        boosted(1, RayTrainReportCallback())


def test_a_trainer_of_rays_that_is_not_here_says_what_to_use() -> None:
    with pytest.raises(ImportError, match=r"XGBoostTrainer is not here: call xgboost\.train in a function"):
        from trainables.xgboost import XGBoostTrainer  # noqa: F401
