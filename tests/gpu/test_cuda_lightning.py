"""Lightning on a GPU, with the real library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch

import trainables as train
from tests.gpu.killed_loop import BATCH, EPOCHS, SAMPLES, check, dies, newest, said
from trainables.lightning import RayDDPStrategy, RayLightningEnvironment, RayTrainReportCallback, prepare_trainer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.torch,
    # Of the library and of those that it loads.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


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
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(SAMPLES), batch_size=BATCH, shuffle=True)
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


def test_a_killed_rank_ends_with_the_weights_of_one_that_nobody_disturbed(tmp_path: Path) -> None:
    check(with_lightning, tmp_path)
