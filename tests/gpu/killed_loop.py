"""A loop in `TorchTrainer` whose rank is killed on a GPU, beside one that nobody disturbs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

import trainables as train
import tuner as tune
from tests.gpu.harness import BACKEND, DEVICE
from tests.trainables.killing import die_once
from trainables import FailureConfig, RunConfig, ScalingConfig
from trainables.torch import TorchConfig, TorchTrainer

EPOCHS, KILLED_IN, AT_BATCH, BATCH = 3, 2, 1, 8
SAMPLES = torch.arange(96.0).reshape(32, 3).sin()


def dies(config: dict[str, Any], epoch: int, batch: int) -> None:
    if config["dies"] and (epoch, batch) == (KILLED_IN, AT_BATCH):
        die_once(Path(config["place"]))


@contextmanager
def newest(name: str) -> Iterator[str | None]:
    checkpoint = train.get_checkpoint()
    with checkpoint.as_directory() if checkpoint else nullcontext() as directory:
        yield directory and f"{directory}/{name}"


def said(model: Any) -> dict[str, Any]:
    """What is compared, in full: JSON keeps the bits of a float."""
    weights = [value for parameter in model.parameters() for value in parameter.flatten().tolist()]
    return {"weights": weights, "device": str(next(model.parameters()).device)}


def check(function: Callable[[dict[str, Any]], None], place: Path) -> None:
    """Run it twice at once; one dies. It reports each epoch with a checkpoint, and at the end `said(model)`."""
    trainer = TorchTrainer(
        function,
        train_loop_config={"place": str(place)},
        torch_config=TorchConfig(backend=BACKEND, timeout_s=60),
        scaling_config=ScalingConfig(num_workers=1, use_gpu=True, resources_per_worker={"CPU": 1, "GPU": 0.5}),
        run_config=RunConfig(
            name="e", storage_path=str(place), failure_config=FailureConfig(max_failures=1), verbose=0
        ),
    )

    grid = tune.Tuner(trainer, param_space={"train_loop_config": {"dies": tune.grid_search([False, True])}}).fit()

    assert not grid.errors and (place / ".once-killed").exists()
    straight, killed = (result.metrics for result in grid)
    assert straight["training_iteration"] == killed["training_iteration"] == EPOCHS + 1
    assert (straight["device"], straight["weights"]) == (DEVICE, killed["weights"])
