"""Keras with the real library, on torch: epochs reported, interrupted and continued."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trainables as train
import tuner as tune
from tests.trainables.killing import first_time
from trainables.errors import CheckpointNotFoundError, InvalidSettingError

with pytest.MonkeyPatch.context() as _patch:
    _patch.setenv("KERAS_BACKEND", "torch")
    _patch.setenv("KERAS_HOME", os.devnull)  # it would write its settings there
    keras: Any = importlib.import_module("keras")
    ours: Any = importlib.import_module("trainables.keras")
    tunes: Any = importlib.import_module("tuner.integration.keras")

pytestmark = [
    pytest.mark.torch,
    # Of the library and of those that it loads.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
X = np.sin(np.arange(96.0)).reshape(32, 3).astype("float32")
Y = X.sum(1, keepdims=True)


def line() -> Any:
    layers = [keras.Input((3,)), keras.layers.Dropout(0.2, seed=5), keras.layers.Dense(1, kernel_initializer="ones")]
    model = keras.Sequential(layers)
    model.compile(optimizer=keras.optimizers.Adam(0.1), loss="mse", metrics=["mae"])
    return model


def fitted(model: Any, *callbacks: Any, epochs: int = 5, **more: Any) -> Any:
    settings = {"batch_size": 8, "verbose": 0, "validation_split": 0.25, **more}
    return model.fit(X, Y, epochs=epochs, callbacks=list(callbacks), **settings)


def run(function: Any, path: Path, **settings: Any) -> Any:
    settings = {"executor": "inline", "verbose": 0, **settings}
    (trial,) = tune.run(function, storage_path=path, name="e", **settings).trials
    return trial


def rows(trial: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(trial.path, "result.json").read_text().splitlines()]


def saved(trial: Any) -> list[str]:
    return sorted(path.parent.name for path in Path(trial.path).glob("checkpoint_*/.manifest.json"))


def test_an_interrupted_trial_ends_with_the_model_of_one_that_was_not(tmp_path: Path) -> None:
    models = []

    class Fails(keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 3 and first_time(tmp_path, "failed"):
                raise RuntimeError("lost")

    def fit(config: dict[str, Any]) -> None:
        keras.utils.set_random_seed(3)
        checkpoint = train.get_checkpoint()
        callback = tunes.TuneReportCheckpointCallback({"loss": "val_loss"}, frequency=2)
        model = callback.get_model(checkpoint) if checkpoint else line()
        fitted(model, callback, Fails(), initial_epoch=callback.get_epochs(checkpoint))
        models.append(model)

    trial = run(fit, tmp_path, max_failures=1)

    keras.utils.set_random_seed(3)
    straight, (model,) = line(), models
    history = fitted(straight).history
    assert trial.num_failures == 1
    assert all(np.array_equal(*pair) for pair in zip(model.get_weights(), straight.get_weights(), strict=True))
    assert [row["loss"] for row in rows(trial)] == pytest.approx(history["val_loss"])
    assert [row["training_iteration"] for row in rows(trial)] == [1, 2, 3, 4, 5]
    with trial.checkpoint.as_directory() as directory:
        assert Path(directory, "checkpoint.keras").exists()
    assert ours.KerasEventCallback.get_epochs(trial.checkpoint) == 4


def test_reports_and_saves_are_asked_for_apart_too(tmp_path: Path) -> None:
    callback = tunes.TuneReportCheckpointCallback("loss", checkpoint_on="train_end", report_metrics_on="epoch_end")

    trial = run(lambda config: fitted(line(), callback) and None, tmp_path)

    assert saved(trial) == ["checkpoint_000006"]


def test_one_that_only_reports_saves_nothing_and_reports_where_it_is_asked_to(tmp_path: Path) -> None:
    def fit(config: dict[str, Any]) -> None:
        fitted(line(), tunes.TuneReportCallback(["loss", "later"], on=["batch_end", "train_end"]), epochs=1)

    trial = run(fit, tmp_path)

    assert len(rows(trial)) == 3 + 1
    assert "loss" in trial.last_result
    assert not saved(trial)


def test_saving_and_reporting_can_have_different_times(tmp_path: Path) -> None:
    callback = ours.ReportCheckpointCallback(checkpoint_on="train_end", report_metrics_on="epoch_end")

    trial = run(lambda config: fitted(line(), callback, epochs=2), tmp_path)

    assert len(rows(trial)) == 3
    assert {"loss", "mae", "val_loss", "val_mae"} <= set(rows(trial)[0])
    assert saved(trial) == ["checkpoint_000003"]
    assert ours.KerasEventCallback.get_epochs(trial.checkpoint) == 2
    with pytest.raises(CheckpointNotFoundError, match=r"other\.keras"):
        ours.KerasEventCallback.get_model(trial.checkpoint, "other")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"on": "epochs_end"}, "'epoch_end'"),
        ({"frequency": 0}, "frequency"),
        ({"metrics": 3}, "metrics=3 is not accepted"),
        ({"on": ["epoch_end", "train_end"], "frequency": [1]}, "one for each"),
    ],
)
def test_what_is_not_accepted_is_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSettingError, match=said):
        tunes.TuneReportCheckpointCallback(**settings)
