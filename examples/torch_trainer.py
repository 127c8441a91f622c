"""Train one CNN on the UCI digits in two processes; kill it, run it again, and it ends with the same weights.

Each process goes through its half of the images. Every 20 steps each saves all that its training needs; a checkpoint
holds what both saved. Call it with a directory (or s3://bucket/path) to have the run there.
"""

from __future__ import annotations

import os
import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import trainables as train
from trainables import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from trainables.torch import (
    InterruptableDistributedSampler,
    TorchTrainer,
    TrainState,
    prepare_data_loader,
    prepare_model,
)

SAVE_EVERY = 20


def digits() -> tuple[TensorDataset, TensorDataset]:
    """1,797 images of 8 x 8: the first 1,500 to train on, the others to test."""
    images, labels = load_digits(return_X_y=True)
    images, labels = torch.tensor(images / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(labels)
    return TensorDataset(images[:1500], labels[:1500]), TensorDataset(images[1500:], labels[1500:])


def build() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(32 * 16, 10),
    )


def train_func(config: dict) -> None:
    mine = f"rank_{train.get_context().get_world_rank()}.pt"
    data, _ = digits()
    sampler = InterruptableDistributedSampler(data)
    loader = prepare_data_loader(DataLoader(data, batch_size=config["batch_size"], sampler=sampler))
    model = prepare_model(build())
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
    last = config["epochs"] * len(loader)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, last)
    state = TrainState(model=model, optimizer=optimizer, lr_scheduler=scheduler, sampler=sampler)

    checkpoint = train.get_checkpoint()
    if checkpoint:  # it was interrupted: go on with the next batch
        with checkpoint.as_directory() as directory:
            state.load_state_dict(torch.load(os.path.join(directory, mine)))

    for epoch in range(sampler.epoch, config["epochs"]):
        with sampler.in_epoch(epoch):
            for images, labels in loader:
                loss = nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                sampler.advance(len(labels))
                step = scheduler.last_epoch
                if step % SAVE_EVERY == 0 or step == last:
                    with train.checkpoint_dir() as directory:
                        torch.save(state.state_dict(), os.path.join(directory, mine))
                    train.report({"loss": loss.item(), "step": step})


SETTINGS = {
    "train_loop_config": {"lr": 0.05, "batch_size": 16, "epochs": 6},
    "scaling_config": ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
}
trainer = TorchTrainer(train_func, **SETTINGS)
"""What configs/torch_trainer.yaml tunes."""


def main() -> None:
    place = os.path.expanduser(sys.argv[1] if len(sys.argv) > 1 else "~/tuner_results")
    if TorchTrainer.can_restore(f"{place}/torch_trainer"):
        trainer = TorchTrainer.restore(f"{place}/torch_trainer", train_func, **SETTINGS)
    else:
        run_config = RunConfig(
            name="torch_trainer",
            storage_path=place,
            checkpoint_config=CheckpointConfig(num_to_keep=2),
            failure_config=FailureConfig(max_failures=3),
            seed=1,
        )
        trainer = TorchTrainer(train_func, run_config=run_config, **SETTINGS)
    result = trainer.fit()

    model = build()
    with result.checkpoint.as_directory() as directory:
        model.load_state_dict(torch.load(os.path.join(directory, "rank_0.pt"))["model"])
    images, labels = digits()[1].tensors
    model.eval()
    with torch.no_grad():
        accuracy = (model(images).argmax(1) == labels).float().mean().item()
    print(f"checkpoint        {result.checkpoint.path}")
    print(f"steps             {result.metrics['step']}")
    print(f"accuracy of the model loaded back from it, on held-out data: {accuracy:.4f}")


if __name__ == "__main__":
    main()
