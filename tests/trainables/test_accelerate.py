"""Accelerate with the real library: its states are reported, by one process and by the ranks of a group."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

import trainables as train
import tuner as tune
from tests.trainables.killing import first_time
from trainables.torch import TorchTrainer, get_device

pytestmark = [
    pytest.mark.torch,
    # Of the library and of those that it loads.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
X = torch.arange(96.0).reshape(32, 3).sin()
EPOCHS = 4


def fit(config: dict[str, Any]) -> Any:
    """As docs/integrations.md shows it: every rank saves its part into the directory that it reports."""
    set_seed(1)
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(X, X.sum(1, keepdim=True)), batch_size=4, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    checkpoint = train.get_checkpoint()
    first = 0
    with checkpoint.as_directory() if checkpoint else nullcontext() as directory:
        if checkpoint:
            accelerator.load_state(directory)
            first = checkpoint.get_metadata()["epochs"]
    for epoch in range(first, EPOCHS):
        for batch, wanted in loader:
            loss = ((model(batch) - wanted) ** 2).mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if (
                epoch == 2
                and "place" in config
                and accelerator.is_main_process
                and first_time(config["place"], "failed")
            ):
                raise RuntimeError("lost")
        save(accelerator, {"loss": loss.item(), "ranks": accelerator.num_processes}, epoch + 1)
    assert accelerator.device.type == get_device().type
    return accelerator.unwrap_model(model)


def save(accelerator: Accelerator, metrics: dict[str, Any], epochs: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        accelerator.save_state(directory)
        checkpoint = train.Checkpoint.from_directory(directory, move=True)
        checkpoint.set_metadata({"epochs": epochs})
        train.report(metrics, checkpoint=checkpoint)


def files(checkpoint: Any) -> set[str]:
    with checkpoint.as_directory() as directory:
        return {file.name for file in Path(directory).iterdir()}


def test_an_interrupted_trial_ends_with_the_model_of_one_that_was_not(tmp_path: Path) -> None:
    models = []
    settings: dict[str, Any] = {"storage_path": tmp_path, "executor": "inline", "verbose": 0}

    analysis = tune.run(
        lambda config: models.append(fit(config)), name="e", config={"place": tmp_path}, max_failures=1, **settings
    )
    tune.run(lambda config: models.append(fit(config)), name="straight", **settings)

    (trial,) = analysis.trials
    continued, straight = models
    assert trial.num_failures == 1
    assert trial.last_result["training_iteration"] == EPOCHS
    assert torch.equal(continued.weight, straight.weight)


def test_the_ranks_of_a_group_report_one_state_and_go_on_from_it(tmp_path: Path) -> None:
    result = TorchTrainer(
        fit,
        train_loop_config={"place": tmp_path},
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
        run_config=train.RunConfig(
            storage_path=str(tmp_path), name="e", verbose=0, failure_config=train.FailureConfig(max_failures=1)
        ),
    ).fit()

    assert result.error is None
    assert (tmp_path / ".once-failed").exists()
    assert result.metrics["ranks"] == 2
    assert result.metrics["training_iteration"] == EPOCHS
    assert {"model.safetensors", "optimizer.bin", "random_states_0.pkl", "random_states_1.pkl"} <= files(
        result.checkpoint
    )
