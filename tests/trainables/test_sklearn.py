"""scikit-learn with the real library: estimators that learn batch by batch, killed and continued."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import SGDClassifier, SGDRegressor

import trainables as train
import tuner as tune
from tests.trainables.killing import die_once
from trainables.errors import CheckpointNotFoundError, InvalidSettingError
from trainables.sklearn import PartialFitTrainable, SklearnCheckpoint

X = np.random.default_rng(0).normal(size=(80, 4))
Y = (X @ [1.0, -2.0, 0.5, 0.0] > 0).astype(int)
BATCHES = [(X[start : start + 16], Y[start : start + 16]) for start in range(0, 80, 16)]


def shuffled(config: dict[str, Any], epoch: int) -> list[tuple[Any, Any]]:
    return [BATCHES[index] for index in np.random.default_rng(epoch).permutation(len(BATCHES))]


def kind(batches: Any = shuffled, scorer: Any = "accuracy", **more: Any) -> type[PartialFitTrainable]:
    settings = {"validation": (X, Y), "classes": [0, 1], **more}
    return PartialFitTrainable.of(SGDClassifier(random_state=0), batches, scorer, **settings)


def alone(steps: int, **settings: Any) -> PartialFitTrainable:
    """Trained without a trial and without interruption."""
    made = kind(**settings)({"alpha": 1e-3})
    for _ in range(steps):
        made.train()
    return made


@pytest.mark.parametrize("batches_per_step", [None, 2], ids=["whole passes", "in the middle of one"])
def test_a_trial_that_is_killed_ends_with_the_estimator_of_one_that_was_not(
    batches_per_step: int | None, tmp_path: Path
) -> None:
    def scorer(estimator: Any, x: Any, y: Any) -> float:
        if estimator.t_ > 16 * 12:
            die_once(tmp_path)
        return float(estimator.score(x, y))

    analysis = tune.run(
        kind(scorer=scorer, batches_per_step=batches_per_step),
        storage_path=tmp_path,
        name="e",
        config={"alpha": 1e-3},
        stop={"training_iteration": 8},
        checkpoint_freq=1,
        max_failures=1,
        verbose=0,
    )

    (trial,) = analysis.trials
    straight = alone(8, batches_per_step=batches_per_step)
    estimator = SklearnCheckpoint.of(trial.checkpoint).get_estimator()
    assert trial.num_failures == 1
    assert trial.last_result["batches"] == (40 if batches_per_step is None else 16)
    assert trial.last_result["epoch"] == (8 if batches_per_step is None else 3)
    assert trial.last_result["score"] == straight.estimator.score(X, Y)
    np.testing.assert_array_equal(estimator.coef_, straight.estimator.coef_)
    assert estimator.t_ == straight.estimator.t_


def test_the_same_batches_are_gone_through_again_and_a_scorer_gives_several_metrics() -> None:
    made = PartialFitTrainable.of(
        SGDRegressor, BATCHES, lambda estimator: {"norm": float(abs(estimator.coef_).sum())}, batches_per_step=7
    )({"random_state": 0})

    results = [made.train() for _ in range(3)]

    assert [(result["batches"], result["epoch"]) for result in results] == [(7, 1), (14, 2), (21, 4)]
    assert results[0]["norm"] != results[1]["norm"]


def test_a_function_of_the_config_makes_the_estimator() -> None:
    made = PartialFitTrainable.of(lambda config: SGDRegressor(alpha=config["a"]), BATCHES, "r2", validation=(X, Y))(
        {"a": 0.5}
    )

    assert made.estimator.alpha == 0.5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"batches": iter(BATCHES)}, "batches"),
        ({"batches": None}, "batches"),
        ({"batches_per_step": 0}, "batches_per_step"),
        ({"batches_per_step": "2"}, "batches_per_step"),
        ({"scorer": None}, "scorer"),
        ({"scorer": "accurracy"}, "accepted: 'accuracy'"),
        ({"validation": None}, "needs validation"),
    ],
)
def test_what_cannot_be_trained_so_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSettingError, match=said):
        kind(**change)


def test_an_estimator_without_partial_fit_and_an_empty_pass_are_refused() -> None:
    with pytest.raises(InvalidSettingError, match="partial_fit"):
        PartialFitTrainable.of(dict, BATCHES, len)({})
    with pytest.raises(InvalidSettingError, match="no batch in epoch 0"):
        kind(batches=[])({}).train()


def test_an_estimator_is_reported_from_a_function_and_read_back(tmp_path: Path) -> None:
    def fit(config: dict[str, Any]) -> None:
        estimator = SGDClassifier(random_state=0).fit(X, Y)
        train.report({"score": estimator.score(X, Y)}, checkpoint=SklearnCheckpoint.from_estimator(estimator))

    (trial,) = tune.run(fit, storage_path=tmp_path, name="e", executor="inline", verbose=0).trials

    assert SklearnCheckpoint.of(trial.checkpoint).get_estimator().score(X, Y) == trial.last_result["score"]


def test_an_estimator_is_written_into_a_directory(tmp_path: Path) -> None:
    checkpoint = SklearnCheckpoint.from_estimator(SGDClassifier(alpha=0.25), path=tmp_path / "new")

    assert checkpoint.get_estimator().alpha == 0.25
    assert [file.name for file in (tmp_path / "new").iterdir()] == [SklearnCheckpoint.MODEL_FILENAME]
    with pytest.raises(CheckpointNotFoundError, match="model.pkl"):
        SklearnCheckpoint(tmp_path).get_estimator()
