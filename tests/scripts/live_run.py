"""A run with failures, a limit and checkpoints, slow enough to be watched. usage: live_run.py STORAGE GO

Trials wait at their fourth result until the file GO is there.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import tuner as tune
from tuner.schedulers import ASHAScheduler


def train(config: dict[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    done = checkpoint.to_dict()["done"] if checkpoint else 0
    for count in range(done + 1, 10):
        if config["depth"] == 1 and count == 2:
            raise ValueError("no convergence at depth 1")
        while count == 5 and not Path(config["go"]).exists():
            time.sleep(0.02)
        saved = tune.Checkpoint.from_dict({"done": count}) if count % 3 == 0 else None
        tune.report({"validation/loss": config["rate"] / count, "accuracy": count / 10}, checkpoint=saved)


if __name__ == "__main__":
    tune.run(
        train,
        name="live",
        storage_path=sys.argv[1],
        metric="validation/loss",
        mode="min",
        resume="AUTO",
        num_samples=3,
        scheduler=ASHAScheduler(max_t=9, grace_period=9),
        raise_on_failed_trial=False,
        max_concurrent_trials=2,
        config={
            "depth": tune.grid_search([1, 2, 3]),
            "rate": tune.loguniform(1e-3, 1),
            "dropout": tune.uniform(0, 0.5),
            "optimizer": tune.choice(["adam", "sgd"]),
            "width": tune.randint(16, 512),
            "go": sys.argv[2],
        },
    )
