"""`Trainer`, Ray Train's first generation, over a group without a framework."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest

import trainables as train
import tuner as tune
from tests.trainables.first_generation import STEPS, pairs, report_twice, trainer
from trainables import CheckpointStrategy, Trainer
from trainables.errors import InvalidSettingError, SessionError, TrainingFailedError
from trainables.group.framework import Framework


def save_four() -> None:
    for loss in (2, 4, 1, 3):
        train.save_checkpoint(loss=loss)


def names(made: Trainer) -> list[str]:
    assert made.latest_checkpoint_dir is not None
    return sorted(path.name for path in made.latest_checkpoint_dir.iterdir())


def test_the_best_two_are_kept_under_the_paths_that_the_guide_shows(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TUNE_RESULT_DIR", str(tmp_path))
    made = trainer(None)
    assert (made.best_checkpoint_path, made.latest_checkpoint_dir, made.latest_checkpoint) == (None, None, None)

    made.run(save_four, checkpoint_strategy=CheckpointStrategy(2, "loss", "min"))

    run = made.latest_run_dir
    assert run is not None
    assert re.fullmatch(r"train_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d/run_001", str(run.relative_to(tmp_path)))
    assert made.latest_checkpoint_dir == run / "checkpoints"
    assert made.best_checkpoint_path == run / "checkpoints" / "checkpoint_000003"
    assert names(made) == ["checkpoint_000001", "checkpoint_000003"]
    assert train.Checkpoint(made.best_checkpoint_path).to_dict()["loss"] == 1
    latest = made.latest_checkpoint
    assert latest is not None
    assert isinstance(latest.pop("_timestamp"), int)
    assert latest == {"loss": 3}


def test_runs_are_numbered_return_what_workers_return_and_go_on_from_a_checkpoint(tmp_path: Path) -> None:
    def count(config: dict[str, Any]) -> tuple[int, int]:
        loaded = train.load_checkpoint()
        start = 0 if loaded is None else loaded["epoch"] + 1
        for epoch in range(start, config["epochs"]):
            train.save_checkpoint(epoch=epoch)
        return start, train.world_rank()

    made = trainer(tmp_path / "here")

    assert made.run(count, config={"epochs": 2}) == [(0, 0), (0, 1)]
    assert names(made) == ["checkpoint_000001", "checkpoint_000002"]
    assert made.run(count, config={"epochs": 3}, checkpoint=made.latest_checkpoint) == [(2, 0), (2, 1)]
    assert made.latest_run_dir == tmp_path / "here" / "run_002"
    best = made.best_checkpoint_path
    assert made.run(count, config={"epochs": 3}, checkpoint=best, checkpoint_strategy=CheckpointStrategy(0)) == [
        (3, 0),
        (3, 1),
    ]
    assert names(made) == []
    assert made.best_checkpoint_path is None


def test_a_directory_that_was_used_before_gets_the_next_run_and_large_values_come_back(tmp_path: Path) -> None:
    (tmp_path / "run_001").mkdir()
    made = trainer(tmp_path)

    returned = made.run(lambda: bytes(2 << 20) if train.world_rank() else threading.Lock())

    assert returned == [None, bytes(2 << 20)]
    assert made.latest_run_dir == tmp_path / "run_002"
    (said,) = made.latest_run_dir.glob("*/stderr")
    assert "what rank 0 returned, a lock, cannot be pickled: it is None" in said.read_text()
    assert list((tmp_path / "run_001").iterdir()) == []


def test_callbacks_see_results_and_a_failure_is_raised(tmp_path: Path) -> None:
    class Seen:
        def __init__(self) -> None:
            self.said: list[Any] = []

        def start_training(self, logdir: str, config: dict[str, Any]) -> None:
            self.said.append(Path(logdir).name)

        def handle_result(self, results: list[dict[str, Any]]) -> None:
            self.said.append(pairs(results))

        def finish_training(self, error: bool) -> None:
            self.said.append(error)

    def fails() -> None:
        report_twice()
        raise ValueError("wrong")

    made, seen = trainer(tmp_path), Seen()

    made.run(report_twice, callbacks=[seen])
    with pytest.raises(TrainingFailedError, match="ValueError: wrong"):
        made.run(fails, callbacks=[seen])

    assert seen.said == ["run_001", *STEPS, False, "run_002", *STEPS, True]
    assert names(made) == ["checkpoint_000001", "checkpoint_000002"]  # saved before the failure


def test_a_failed_worker_is_retried_from_its_latest_checkpoint(tmp_path: Path) -> None:
    def dies_once(config: dict[str, Any]) -> int:
        loaded = train.load_checkpoint()
        start = 0 if loaded is None else loaded["epoch"] + 1
        for epoch in range(start, 3):
            train.save_checkpoint(epoch=epoch)
        if start == 0 and train.world_rank() == 1:
            os._exit(1)
        return start

    made = Trainer(
        backend=Framework(), num_workers=2, resources_per_worker={"CPU": 0.5}, logdir=tmp_path, max_retries=1
    )
    made.start()

    started_at = made.run(dies_once, config={}, checkpoint_strategy=CheckpointStrategy(1))

    assert set(started_at) <= {2, 3}
    assert len(names(made)) == 1


def test_the_hook_runs_in_every_worker(tmp_path: Path) -> None:
    made = trainer(tmp_path)
    made.start(initialization_hook=lambda: (tmp_path / f"hook_{train.world_rank()}").touch())

    made.run(lambda: None)

    assert sorted(path.name for path in tmp_path.glob("hook_*")) == ["hook_0", "hook_1"]


def test_a_trainer_becomes_a_trainable_whose_config_is_the_trials(tmp_path: Path) -> None:
    def report_lr(config: dict[str, Any]) -> None:
        train.report(lr=config["lr"], size=train.world_size())

    trainable = trainer(tmp_path).to_tune_trainable(report_lr)

    analysis = tune.run(trainable, config={"lr": tune.grid_search([1, 2])}, storage_path=tmp_path, name="t", verbose=0)

    assert [(trial.last_result["lr"], trial.last_result["size"]) for trial in analysis.trials] == [(1, 2), (2, 2)]


def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match=r"backend='horovod' is not accepted; accepted: 'torch'"):
        Trainer(backend="horovod")
    with pytest.raises(InvalidSettingError, match="num_workers=0"):
        Trainer(num_workers=0)
    with pytest.raises(SessionError, match="call start"):
        Trainer(backend=Framework(), logdir=tmp_path).run(save_four)
    made = trainer(tmp_path)
    with pytest.raises(InvalidSettingError, match="checkpoint_strategy=2"):
        made.run(save_four, checkpoint_strategy=2)  # type: ignore[arg-type]
    with pytest.raises(InvalidSettingError, match="unknown argument of Trainer.run 'strategy'"):
        made.run(save_four, strategy=None)  # type: ignore[call-arg]
    with pytest.raises(InvalidSettingError, match="callbacks=3 is not accepted"):
        made.run(save_four, callbacks=3)  # type: ignore[arg-type]
    made.shutdown()
    with pytest.raises(SessionError, match="call start"):
        made.run(save_four)
    with pytest.raises(SessionError, match="outside a trial"):
        train.save_checkpoint(loss=1)
    assert train.load_checkpoint() is None
    assert not list(tmp_path.iterdir())
