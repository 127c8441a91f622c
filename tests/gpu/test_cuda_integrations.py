"""Lightning, Transformers and Accelerate on a GPU, with the real libraries: a killed rank ends with the same bits."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from transformers import Trainer, TrainerCallback, TrainingArguments

import trainables as train
import tuner as tune
from tests.gpu.harness import BACKEND, DEVICE
from tests.trainables.killing import die_once
from trainables import FailureConfig, RunConfig, ScalingConfig
from trainables.huggingface.transformers import RayTrainReportCallback as TransformersCallback
from trainables.huggingface.transformers import prepare_trainer as prepare_transformers
from trainables.lightning import RayDDPStrategy, RayLightningEnvironment, RayTrainReportCallback, prepare_trainer
from trainables.torch import TorchConfig, TorchTrainer

pytestmark = [pytest.mark.gpu, pytest.mark.torch]

EPOCHS, KILLED_IN, AT_BATCH = 3, 2, 1
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


# --- Lightning --------------------------------------------------------------------------------------------


class Line(pl.LightningModule):  # type: ignore[misc]
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config
        self.layers = torch.nn.Sequential(torch.nn.Dropout(0.2), torch.nn.Linear(3, 1))

    def training_step(self, batch: Any, index: int) -> Any:
        dies(self.config, self.current_epoch, index)
        loss = (self.layers(batch[0]) - batch[0].sum(1, keepdim=True)).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=0.1)


class RemembersItsWeights(pl.Callback):  # type: ignore[misc]
    """At the end of the last batch, while the model is on its device."""

    seen: dict[str, Any]

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *more: Any) -> None:
        self.seen = said(pl_module)


def with_lightning(config: dict[str, Any]) -> None:
    pl.seed_everything(3, verbose=False)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(SAMPLES), batch_size=8, shuffle=True)
    memory = RemembersItsWeights()
    made = pl.Trainer(
        max_epochs=EPOCHS,
        accelerator="gpu",
        devices=1,
        strategy=RayDDPStrategy(),
        plugins=[RayLightningEnvironment()],
        callbacks=[RayTrainReportCallback(), memory],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with newest(RayTrainReportCallback.CHECKPOINT_NAME) as path:
        prepare_trainer(made).fit(Line(config), loader, ckpt_path=path)
    train.report(memory.seen)


# --- Transformers -----------------------------------------------------------------------------------------


class Plain(torch.nn.Module):
    """A model as the Trainer wants one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Dropout(0.2), torch.nn.Linear(3, 1))

    def forward(self, x: Any = None, labels: Any = None) -> dict[str, Any]:
        out = self.layers(x)
        return {"loss": (out - labels).square().mean(), "logits": out}


class Dies(TrainerCallback):  # type: ignore[misc]
    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        dies(self.config, *divmod(state.global_step, len(SAMPLES) // 8))


def with_transformers(config: dict[str, Any]) -> None:
    set_seed(3)
    arguments = TrainingArguments(
        output_dir="out",
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=8,
        learning_rate=0.1,
        seed=3,
        save_strategy="epoch",
        logging_strategy="epoch",
        report_to="none",
        disable_tqdm=True,
    )
    data: Any = [{"x": x, "labels": x.sum(0, keepdim=True)} for x in SAMPLES]
    made = prepare_transformers(
        Trainer(Plain(), arguments, train_dataset=data, callbacks=[TransformersCallback(), Dies(config)])
    )
    with newest(TransformersCallback.CHECKPOINT_NAME) as path:
        made.train(path)
    train.report(said(made.model))


# --- Accelerate -------------------------------------------------------------------------------------------


def with_accelerate(config: dict[str, Any]) -> None:
    set_seed(3)
    accelerator = Accelerator()
    plain = torch.nn.Sequential(torch.nn.Dropout(0.2), torch.nn.Linear(3, 1))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(SAMPLES), batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(plain, torch.optim.Adam(plain.parameters(), lr=0.1), loader)
    checkpoint, first = train.get_checkpoint(), 0
    if checkpoint:
        with checkpoint.as_directory() as directory:
            accelerator.load_state(directory)
        first = checkpoint.get_metadata()["epochs"]
    for epoch in range(first, EPOCHS):
        for index, (batch,) in enumerate(loader):
            dies(config, epoch, index)
            optimizer.zero_grad()
            accelerator.backward((model(batch) - batch.sum(1, keepdim=True)).square().mean())
            optimizer.step()
        with tempfile.TemporaryDirectory() as own:
            accelerator.save_state(own)
            saved = train.Checkpoint.from_directory(own, move=True)
            saved.set_metadata({"epochs": epoch + 1})
            train.report({}, checkpoint=saved)
    train.report(said(accelerator.unwrap_model(model)))


@pytest.mark.parametrize("function", [with_lightning, with_transformers, with_accelerate])
def test_a_killed_rank_on_a_gpu_ends_with_the_weights_of_one_that_nobody_disturbed(
    function: Any, tmp_path: Path
) -> None:
    trainer = TorchTrainer(
        function,
        train_loop_config={"place": str(tmp_path)},
        torch_config=TorchConfig(backend=BACKEND, timeout_s=60),
        scaling_config=ScalingConfig(num_workers=1, use_gpu=True, resources_per_worker={"CPU": 1, "GPU": 0.5}),
        run_config=RunConfig(
            name="e", storage_path=str(tmp_path), failure_config=FailureConfig(max_failures=1), verbose=0
        ),
    )

    grid = tune.Tuner(trainer, param_space={"train_loop_config": {"dies": tune.grid_search([False, True])}}).fit()

    assert not grid.errors and (tmp_path / ".once-killed").exists()
    straight, killed = (result.metrics for result in grid)
    assert straight["training_iteration"] == killed["training_iteration"] == EPOCHS + 1
    assert (straight["device"], straight["weights"]) == (DEVICE, killed["weights"])
