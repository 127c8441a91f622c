"""Tune a small CNN on the UCI digits: Optuna proposes, ASHA stops early, every epoch is a checkpoint.

Run it, kill it at any moment, and run it again: it continues. Once it has finished it shows its results at once.
"""

from __future__ import annotations

import os
import tempfile

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import tuner as tune
from tuner.schedulers import ASHAScheduler
from tuner.search.optuna import OptunaSearch

EPOCHS = 8
SPACE = {
    "lr": tune.loguniform(1e-4, 3e-2),
    "batch_size": tune.choice([16, 32, 64, 128]),
    "channels": tune.choice([8, 16, 32]),
    "dropout": tune.uniform(0.0, 0.5),
    "weight_decay": tune.loguniform(1e-6, 1e-2),
}


def digits() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """1,797 images of 8 x 8, always split in the same way: train 60 %, validation 20 %, test 20 %."""
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
    labels = torch.tensor(labels)
    rest, test = train_test_split(range(len(labels)), test_size=0.2, random_state=0, stratify=labels)
    train, validation = train_test_split(rest, test_size=0.25, random_state=0, stratify=labels[rest])
    parts = {"train": train, "validation": validation, "test": test}
    return {name: (images[rows], labels[rows]) for name, rows in parts.items()}


def build(config: dict) -> nn.Module:
    width = config["channels"]
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(config["dropout"]),
        nn.Linear(2 * width * 16, 10),
    )


def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    model.eval()
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def train(config: dict) -> None:
    data = digits()
    images, labels = data["train"]
    model = build(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"], weight_decay=config["weight_decay"])
    first = 1

    checkpoint = tune.get_checkpoint()
    if checkpoint:  # the trial was interrupted: go on where it was
        with checkpoint.as_directory() as directory:
            saved = torch.load(os.path.join(directory, "model.pt"))
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epoch"] + 1

    for epoch in range(first, EPOCHS + 1):
        model.train()
        for rows in torch.randperm(len(labels)).split(config["batch_size"]):
            loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        metrics = {"accuracy": accuracy(model, *data["validation"]), "loss": loss.item()}
        with tempfile.TemporaryDirectory() as directory:
            saved = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(saved, os.path.join(directory, "model.pt"))
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(directory))


def main() -> None:
    analysis = tune.run(
        train,
        name="digits_asha",
        config=SPACE,
        metric="accuracy",
        mode="max",
        num_samples=24,
        scheduler=ASHAScheduler(max_t=EPOCHS, grace_period=1, reduction_factor=2),
        search_alg=OptunaSearch(seed=1),
        keep_checkpoints_num=2,
        checkpoint_score_attr="max-accuracy",
        resume="AUTO",
        seed=1,
    )

    print(f"\n{'trial':<24}{'epochs':>7}{'accuracy':>10}  params")
    for trial in analysis.trials:
        params = "  ".join(f"{key}={value:.3g}" for key, value in trial.evaluated_params.items())
        print(f"{trial.trial_id:<24}{trial.iteration:>7}{trial.last_result.get('accuracy', 0):>10.4f}  {params}")

    best = analysis.get_best_trial("accuracy", "max", scope="all")
    checkpoint = analysis.get_best_checkpoint(best, "accuracy", "max")
    with checkpoint.as_directory() as directory:
        model = build(best.config)
        model.load_state_dict(torch.load(os.path.join(directory, "model.pt"))["model"])
    print(f"\nbest config       {best.config}")
    print(f"best checkpoint   {checkpoint.path}")
    print(f"accuracy of the model loaded back from it, on held-out data: {accuracy(model, *digits()['test']):.4f}")


if __name__ == "__main__":
    main()
