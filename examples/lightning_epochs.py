"""Lightning: every epoch is a result with the trainer's checkpoint; a killed trial goes on with the next epoch."""

from __future__ import annotations

from contextlib import nullcontext

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

import trainables as train
import tuner as tune
from trainables.lightning import RayTrainReportCallback, prepare_trainer


class Line(pl.LightningModule):
    def __init__(self, lr: float) -> None:
        super().__init__()
        self.line, self.lr = torch.nn.Linear(3, 1), lr

    def training_step(self, batch: list, index: int) -> torch.Tensor:
        loss = ((self.line(batch[0]) - batch[1]) ** 2).mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def fit(config: dict) -> None:
    x = torch.randn(256, 3, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=32, shuffle=True)
    trainer = pl.Trainer(
        max_epochs=5,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[RayTrainReportCallback()],
    )
    checkpoint = train.get_checkpoint()
    with checkpoint.as_directory() if checkpoint else nullcontext() as directory:
        path = directory and f"{directory}/{RayTrainReportCallback.CHECKPOINT_NAME}"
        prepare_trainer(trainer).fit(Line(config["lr"]), loader, ckpt_path=path)


if __name__ == "__main__":
    analysis = tune.run(
        fit,
        name="lightning_epochs",
        config={"lr": tune.grid_search([0.01, 0.1])},
        metric="loss",
        mode="min",
        keep_checkpoints_num=1,
        resume="AUTO",
    )
    print("best config:", analysis.best_config)
    print("best checkpoint:", analysis.best_checkpoint.path)
