"""Transformers on a GPU, with the real library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

import trainables as train
from tests.gpu.killed_loop import BATCH, EPOCHS, SAMPLES, check, dies, newest, said
from trainables.huggingface.transformers import RayTrainReportCallback, prepare_trainer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.torch,
    # Of the library and of those that it loads.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


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
        dies(self.config, *divmod(state.global_step, len(SAMPLES) // BATCH))


def with_transformers(config: dict[str, Any]) -> None:
    set_seed(3)
    arguments = TrainingArguments(
        output_dir="out",
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=BATCH,
        learning_rate=0.1,
        seed=3,
        save_strategy="epoch",
        logging_strategy="epoch",
        report_to="none",
        disable_tqdm=True,
    )
    data: Any = [{"x": x, "labels": x.sum(0, keepdim=True)} for x in SAMPLES]
    made = prepare_trainer(
        Trainer(Plain(), arguments, train_dataset=data, callbacks=[RayTrainReportCallback(), Dies(config)])
    )
    with newest(RayTrainReportCallback.CHECKPOINT_NAME) as path:
        made.train(path)
    train.report(said(made.model))


def test_a_killed_rank_ends_with_the_weights_of_one_that_nobody_disturbed(tmp_path: Path) -> None:
    check(with_transformers, tmp_path)
