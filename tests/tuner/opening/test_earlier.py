"""What `reuse=` accepts and refuses, and where an earlier experiment may lie."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.replicated import bucket, cache, server
from trainables.store import fs
from tuner.error import ExperimentNotFoundError, SettingError
from tuner.executors import SimulatedExecutor

__all__ = ["bucket", "cache", "server"]
TRAINED: list[tuple[float, int]] = []


def train(config: dict[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    count = checkpoint.to_dict()["count"] if checkpoint is not None else 0
    while count < config["until"]:
        count += 1
        TRAINED.append((config["lr"], count))
        tune.report({"loss": config["lr"] * count}, checkpoint=tune.Checkpoint.from_dict({"count": count}))


def run(storage: Path, name: str, stop: Any, trainable: Any = train, **more: Any) -> tune.ExperimentAnalysis:
    TRAINED.clear()
    settings: dict[str, Any] = {"metric": "loss", "mode": "min", "executor": "inline", "verbose": 0, **more}
    config = {"lr": tune.grid_search([0.5, 0.25]), "until": 6}
    return tune.run(
        trainable,
        name=name,
        storage_path=storage,
        stop=stop if callable(stop) else {"training_iteration": stop},
        **{"config": config, **settings},
    )


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("first")
    run(storage, "e", 3)
    return storage / "e"


def test_from_a_bucket_on_a_machine_that_has_nothing_else(bucket: str, tmp_path: Path) -> None:
    run(tmp_path / "there", "e", 3, sync_config=tune.SyncConfig(upload_dir=bucket))
    shutil.rmtree(tmp_path / "there")
    trials = run(tmp_path / "here", "f", 5, reuse=f"{bucket}/e").trials
    assert TRAINED == [(0.5, 4), (0.5, 5), (0.25, 4), (0.25, 5)]
    assert [trial.reused and trial.reused.experiment for trial in trials] == [f"{bucket}/e"] * 2
    frames = tune.ExperimentAnalysis(str(tmp_path / "here" / "f")).trial_dataframes
    assert [list(frame["training_iteration"]) for frame in frames.values()] == [[1, 2, 3, 4, 5]] * 2


def test_what_was_reused_goes_to_the_copy_too_and_can_be_reused_from_there(
    first: Path, bucket: str, tmp_path: Path
) -> None:
    run(tmp_path, "f", 4, reuse=first, sync_config=tune.SyncConfig(upload_dir=bucket))
    shutil.rmtree(tmp_path / "f")
    trials = run(tmp_path, "g", 5, reuse=f"{bucket}/f").trials
    assert TRAINED == [(0.5, 5), (0.25, 5)]
    assert [trial.reused and trial.reused.iteration for trial in trials] == [4, 4]


def test_of_several_the_deepest(first: Path, tmp_path: Path) -> None:
    run(tmp_path, "deeper", 4, config={"lr": 0.25, "until": 6})
    trials = run(tmp_path, "f", 6, reuse=[tune.ExperimentAnalysis(str(first)), "deeper"]).trials
    assert TRAINED == [(0.5, 4), (0.5, 5), (0.5, 6), (0.25, 5), (0.25, 6)]
    found = [(Path(trial.reused.experiment).name, trial.reused.iteration) for trial in trials if trial.reused]
    assert found == [("e", 3), ("deeper", 4)]


def test_another_config_another_metric_and_a_tuner(first: Path, tmp_path: Path) -> None:
    grid = tune.Tuner(
        train,
        param_space={"until": 6, "lr": tune.grid_search([0.5, 0.75])},
        tune_config=tune.TuneConfig(metric="time_total_s", mode="min", reuse=str(first)),
        run_config=tune.RunConfig(name="f", storage_path=str(tmp_path), verbose=0, stop={"training_iteration": 4}),
    ).fit()
    trials = tune.ExperimentAnalysis(grid.experiment_path).trials
    assert [trial.reused and trial.reused.iteration for trial in trials] == [3, None]
    assert [trial.iteration for trial in trials] == [4, 4]


def test_a_class_that_said_it_is_done_is_not_trained_on(tmp_path: Path) -> None:
    class Done(tune.Trainable):
        def step(self) -> dict[str, Any]:
            TRAINED.append((0.0, self.iteration + 1))
            return {"loss": 1.0, "done": self.iteration == 1}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            Path(checkpoint_dir, "x").write_text("x")

        def load_checkpoint(self, checkpoint_dir: str) -> None: ...

    run(tmp_path, "e", 9, Done, config={}, checkpoint_freq=1)
    assert len(TRAINED) == 2
    (trial,) = run(tmp_path, "f", 9, Done, config={}, checkpoint_freq=1, reuse=tmp_path / "e").trials
    assert (TRAINED, trial.status, trial.iteration) == ([], "TERMINATED", 2)
    assert trial.end_reason is not None and trial.end_reason.kind.value == "done"


def test_one_that_its_driver_has_left_unfinished(tmp_path: Path) -> None:
    def interrupts(trial_id: str, result: dict[str, Any]) -> bool:
        if result["training_iteration"] == 3:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "e", interrupts)
    run(tmp_path, "f", 4, reuse=tmp_path / "e")
    assert (0.5, 1) not in TRAINED and (0.5, 4) in TRAINED


def _other_train(config: dict[str, Any]) -> None:
    for count in range(6):
        tune.report({"loss": count})


_other_train.__name__ = "train"


@pytest.mark.parametrize(
    ("more", "error", "told"),
    [
        (
            {"trainable": _other_train},
            SettingError,
            "it was trained with other code of train.*; train without reuse=",
        ),
        ({"trainable": lambda config: None}, SettingError, "trained with the trainable 'train', and this run has"),
        ({"name": "e"}, SettingError, 'is this experiment itself: resume="AUTO" continues it'),
        ({"reuse": "/nowhere/e"}, ExperimentNotFoundError, "there is no experiment at /nowhere/e"),
        ({"reuse": 7}, SettingError, "accepted are an experiment's path, name or URI"),
        ({"restore": True}, SettingError, "exclude each other"),
        ({"executor": SimulatedExecutor(lambda config, i: {"loss": 1.0})}, SettingError, "simulated"),
    ],
    ids=["code", "trainable", "itself", "absent", "nothing", "restore", "simulated"],
)
def test_what_is_refused_is_refused_before_anything_is_made(
    more: dict[str, Any], error: type[Exception], told: str, first: Path, tmp_path: Path
) -> None:
    shutil.copytree(first, tmp_path / "e")
    given = {"name": "f", "reuse": tmp_path / "e", "overwrite": True, **more}
    if "restore" in more:
        given |= {"restore": next((tmp_path / "e").glob("*/checkpoint_000003")), "overwrite": False}
    description = fs.read_file(tmp_path / "e" / "experiment.json")
    with pytest.raises(error, match=told):
        run(tmp_path, given.pop("name"), 4, **given)
    assert {path.name for path in tmp_path.iterdir()} - {".tmp", "cache"} == {"e"}
    assert fs.read_file(tmp_path / "e" / "experiment.json") == description
