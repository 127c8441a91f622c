"""Two metrics that pull apart, step by step: configs/objectives.yaml ends trials early by their front.

tuner run configs/objectives.yaml
tuner best objectives    # the trials that none beats in both
"""

from __future__ import annotations

import tuner as tune


def train(config: dict) -> None:
    """The wider, the better and the dearer; the learning rate decides how fast."""
    loss, start = 1.0, 0
    if checkpoint := tune.get_checkpoint():
        loss, start = checkpoint.to_dict()["loss"], checkpoint.to_dict()["step"]
    for step in range(start + 1, 10):
        loss = loss * (1 - config["lr"]) + config["lr"] / config["width"]
        result = {"loss": loss, "cost": float(config["width"])}
        tune.report(result, checkpoint=tune.Checkpoint.from_dict({"loss": loss, "step": step}))


if __name__ == "__main__":
    analysis = tune.run(
        train,
        name="objectives",
        config={"width": tune.choice([4, 16, 64]), "lr": tune.loguniform(0.001, 0.5)},
        metric=["loss", "cost"],
        mode=["min", "min"],
        num_samples=12,
        scheduler=tune.schedulers.ASHAScheduler(max_t=9, reduction_factor=3),
        resume="AUTO",
        seed=1,
    )
    for trial in analysis.best_trials:
        print(trial, trial.config, round(trial.last_result["loss"], 3))
