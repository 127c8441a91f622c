"""A PyTorch loop that can be killed anywhere: five lines more than the loop that you have.

python examples/torch_loop.py
tuner prove examples/torch_loop.py    # kills it at random steps, and compares every number and every weight
"""

from __future__ import annotations

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tuner as tune
from trainables.torch import TrainState

EPOCHS = 6


def train(config: dict) -> None:
    """A small network that learns a curved border, with dropout and a loader that shuffles."""
    points = torch.rand(2000, 2, generator=torch.Generator().manual_seed(0)) * 6 - 3
    labels = (torch.sin(2 * points[:, 0]) > points[:, 1]).long()
    loader = DataLoader(TensorDataset(points[:1500], labels[:1500]), batch_size=64, shuffle=True)
    model = nn.Sequential(nn.Linear(2, config["hidden"]), nn.ReLU(), nn.Dropout(0.1), nn.Linear(config["hidden"], 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)

    state, first = TrainState(model=model, optimizer=optimizer), 0  # and the random states, which draw on too
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as directory:
            state.load_state_dict(torch.load(os.path.join(directory, "state.pt")))
        first = checkpoint.metrics["training_iteration"]

    for _ in range(first, EPOCHS):
        for batch, wanted in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(batch), wanted)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            accuracy = (model(points[1500:]).argmax(1) == labels[1500:]).float().mean().item()
        model.train()
        with tune.checkpoint_dir() as directory:
            torch.save(state.state_dict(), os.path.join(directory, "state.pt"))
        tune.report({"accuracy": accuracy})


if __name__ == "__main__":
    analysis = tune.run(
        train,
        name="torch_loop",
        config={"lr": tune.grid_search([0.03, 0.1]), "hidden": 32},
        metric="accuracy",
        mode="max",
        keep_checkpoints_num=1,
        seed=1,
        resume="AUTO",
    )
    print("best config:", analysis.best_config)
    print("accuracy:", analysis.best_result["accuracy"])
