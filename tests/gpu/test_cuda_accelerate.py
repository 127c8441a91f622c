"""Accelerate on a GPU, with the real library."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

import trainables as train
from tests.gpu.killed_loop import BATCH, EPOCHS, SAMPLES, check, dies, said

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.torch,
    # Of the library and of those that it loads.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def with_accelerate(config: dict[str, Any]) -> None:
    set_seed(3)
    accelerator = Accelerator()
    plain = torch.nn.Sequential(torch.nn.Dropout(0.2), torch.nn.Linear(3, 1))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(SAMPLES), batch_size=BATCH, shuffle=True)
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


def test_a_killed_rank_ends_with_the_weights_of_one_that_nobody_disturbed(tmp_path: Path) -> None:
    check(with_accelerate, tmp_path)
