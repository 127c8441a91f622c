"""LightningCLI with its own config file."""

import time

import lightning as L
import torch
from lightning.pytorch.cli import LightningCLI


class Line(L.LightningModule):
    def __init__(self, lr: float = 0.1):
        super().__init__()
        self.lr, self.layer = lr, torch.nn.Linear(2, 1)

    def training_step(self, batch, index):
        x = batch[0]
        loss = ((self.layer(x) - x.sum(1, keepdim=True)) ** 2).mean()
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def on_train_epoch_start(self):
        time.sleep(0.3)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)


class Points(L.LightningDataModule):
    def train_dataloader(self):
        points = torch.linspace(-1, 1, 32).reshape(16, 2)
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(points), batch_size=4)


if __name__ == "__main__":
    LightningCLI(Line, Points, seed_everything_default=0)
