"""A session around a bare torch loop: ASHA stops what is worse, and a killed search goes on with the next epoch."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn

import tuner as tune
from tuner.schedulers import ASHAScheduler

digits = load_digits()
x = torch.tensor(digits.data / 16, dtype=torch.float32)
y = torch.tensor(digits.target)
held = torch.arange(len(x)) % 5 == 0

EPOCHS = 6
torch.set_num_threads(1)


if __name__ == "__main__":
    with tune.open_session(
        "session_torch_loop",
        config={"lr": tune.loguniform(1e-3, 1.0), "width": tune.choice([16, 32, 64])},
        metric="accuracy",
        mode="max",
        num_samples=6,
        scheduler=ASHAScheduler(max_t=EPOCHS, grace_period=2),
        checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
        seed=0,
    ) as session:
        while (trial := session.ask(wait=True)) is not None:
            torch.manual_seed(trial.seed % 2**63)
            width = trial.config["width"]
            model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
            optimizer = torch.optim.SGD(model.parameters(), lr=trial.config["lr"], momentum=0.9)
            if trial.checkpoint is not None:
                saved = trial.checkpoint.to_dict()
                model.load_state_dict(saved["model"])
                optimizer.load_state_dict(saved["optimizer"])
            for _ in range(trial.iteration, EPOCHS):
                for part in torch.randperm(int((~held).sum())).split(32):
                    loss = nn.functional.cross_entropy(model(x[~held][part]), y[~held][part])
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                accuracy = (model(x[held]).argmax(1) == y[held]).float().mean().item()
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                if trial.report({"accuracy": accuracy}, tune.Checkpoint.from_dict(state)) != "continue":
                    break
            else:
                trial.finish()
    analysis = tune.ExperimentAnalysis(session.path, metric="accuracy", mode="max")
    print("best config:", analysis.best_config)
    print("accuracy on held-out data:", analysis.best_result["accuracy"])
