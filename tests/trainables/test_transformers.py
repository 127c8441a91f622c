"""Transformers with the real library: what its Trainer saves is reported, interrupted and continued."""

from __future__ import annotations

import json
import logging
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

import trainables as train
import tuner as tune
from tests.trainables.killing import die_once, first_time
from trainables import FailureConfig, RunConfig, ScalingConfig
from trainables.errors import CheckpointNotFoundError, InvalidSettingError
from trainables.huggingface.transformers import RayTrainReportCallback, prepare_trainer
from trainables.torch import TorchConfig, TorchTrainer

pytestmark = [
    pytest.mark.torch,
    # Of the library and of those that it loads.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
X = torch.arange(96.0).reshape(32, 3).sin()
DATA = [{"x": x, "labels": x.sum(0, keepdim=True)} for x in X]


class Line(torch.nn.Module):
    """A linear model as the Trainer wants one."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(3, 1)
        torch.nn.init.constant_(self.line.weight, 0.1)
        torch.nn.init.constant_(self.line.bias, 0.0)

    def forward(self, x: Any = None, labels: Any = None) -> dict[str, Any]:
        predicted = self.line(x)
        return {"loss": ((predicted - labels) ** 2).mean(), "logits": predicted}


class Fails(TrainerCallback):  # type: ignore[misc]
    """Ends the first attempt within the third epoch."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.global_step == 10 and first_time(self.place, "failed"):
            raise RuntimeError("lost")


def trainer(output: Path | str, *callbacks: Any, **arguments: Any) -> Any:
    settings = {
        "num_train_epochs": 4,
        "per_device_train_batch_size": 8,
        "learning_rate": 0.1,
        "seed": 3,
        "save_strategy": "epoch",
        "logging_strategy": "epoch",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
    }
    made = TrainingArguments(output_dir=str(output), **{**settings, **arguments})
    return Trainer(Line(), made, train_dataset=DATA, eval_dataset=DATA, callbacks=list(callbacks))


def run(function: Any, path: Path, **settings: Any) -> Any:
    settings = {"executor": "inline", "verbose": 0, **settings}
    (trial,) = tune.run(function, storage_path=path, name="e", **settings).trials
    return trial


def rows(trial: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(trial.path, "result.json").read_text().splitlines()]


@pytest.mark.parametrize(
    "best",
    [{}, {"eval_strategy": "epoch", "load_best_model_at_end": True, "metric_for_best_model": "loss"}],
    ids=["moved", "cloned"],
)
def test_an_interrupted_trial_ends_with_the_model_of_one_that_was_not(best: dict[str, Any], tmp_path: Path) -> None:
    models = []

    def fit(config: dict[str, Any]) -> None:
        made = prepare_trainer(trainer("out", RayTrainReportCallback(), Fails(tmp_path), **best))
        checkpoint = train.get_checkpoint()
        with checkpoint.as_directory() if checkpoint else nullcontext() as directory:
            made.train(directory and f"{directory}/{RayTrainReportCallback.CHECKPOINT_NAME}")
        models.append(made.model)

    trial = run(fit, tmp_path, max_failures=1, keep_checkpoints_num=1)

    straight, (model,) = trainer(tmp_path / "straight", **best), models
    straight.train()
    assert trial.num_failures == 1
    assert torch.equal(model.line.weight, straight.model.line.weight)
    assert [(row["training_iteration"], row["epoch"]) for row in rows(trial)] == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert trial.last_result["step"] == 16
    logged = [entry["loss"] for entry in straight.state.log_history if "loss" in entry]
    assert [row["loss"] for row in rows(trial)] == logged
    left = sorted(os.listdir(Path(trial.path) / "out"))
    assert left == (["checkpoint-12", "checkpoint-16", "checkpoint-4", "checkpoint-8"] if best else [])
    assert not Path("out").exists()


def fit_in_a_group(config: dict[str, Any]) -> None:
    callbacks = [RayTrainReportCallback(), *([DiesInRank1(config["place"])] if config["dies"] else [])]
    made = prepare_trainer(trainer("out", *callbacks))
    checkpoint = train.get_checkpoint()
    with checkpoint.as_directory() if checkpoint else nullcontext() as directory:
        made.train(directory and f"{directory}/{RayTrainReportCallback.CHECKPOINT_NAME}")
    line = made.model.line
    sizes = {
        "seen": made.state.global_step,
        "world": made.args.world_size,
        "wrapped": type(made.model_wrapped).__name__,
    }
    train.report({"weights": [*line.weight.flatten().tolist(), line.bias.item()], **sizes})


class DiesInRank1(TrainerCallback):  # type: ignore[misc]
    """The end of rank 1 within the third epoch, once."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.global_step == 5 and train.get_context().get_world_rank() == 1:
            die_once(self.place)


@pytest.mark.timeout(400)
def test_a_group_of_two_ranks_ends_with_the_weights_of_one_that_nobody_disturbed(tmp_path: Path) -> None:
    torch_trainer = TorchTrainer(
        fit_in_a_group,
        train_loop_config={"place": tmp_path},
        torch_config=TorchConfig(timeout_s=200),
        scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
        run_config=RunConfig(
            name="e", storage_path=str(tmp_path), failure_config=FailureConfig(max_failures=1), verbose=0
        ),
    )

    grid = tune.Tuner(torch_trainer, param_space={"train_loop_config": {"dies": tune.grid_search([False, True])}}).fit()

    assert not grid.errors
    straight, killed = (result.metrics for result in grid)
    assert straight["weights"] == killed["weights"]
    assert (killed["seen"], killed["world"], killed["wrapped"]) == (8, 2, "DistributedDataParallel")
    for result in grid:
        assert [row.get("epoch") for row in rows(result)] == [1, 2, 3, 4, None]
        saved = Path(result.checkpoint.path, RayTrainReportCallback.CHECKPOINT_NAME)
        assert {"rng_state_0.pth", "rng_state_1.pth", "optimizer.pt", "model.safetensors"} <= set(os.listdir(saved))
    assert (tmp_path / ".once-killed").exists()


def test_the_output_directory_stays_where_there_is_no_trial_and_no_saving_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        made = prepare_trainer(trainer(tmp_path / "own", save_strategy="no"))

    assert made.args.output_dir == str(tmp_path / "own")
    assert 'save_strategy="no"' in caplog.text


def test_what_is_no_trainer_is_refused() -> None:
    with pytest.raises(InvalidSettingError, match="accepted: a Trainer of Transformers"):
        prepare_trainer(Line())


def test_a_save_that_is_not_where_it_should_be_is_an_error(tmp_path: Path) -> None:
    class Elsewhere(TrainerCallback):  # type: ignore[misc]
        def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            os.rename(Path(args.output_dir, f"checkpoint-{state.global_step}"), tmp_path / "taken")

    def fit(config: dict[str, Any]) -> None:
        with pytest.raises(CheckpointNotFoundError, match="checkpoint-4"):
            trainer(tmp_path / "out", Elsewhere(), RayTrainReportCallback()).train()
        train.report({"refused": True})

    assert run(fit, tmp_path).last_result["refused"] is True
