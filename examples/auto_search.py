"""Search with `search_alg="auto"`: a model of the learning curves proposes configs and ends trials early by itself."""

from __future__ import annotations

import math

import tuner as tune

EPOCHS = 27


def train(config: dict) -> None:
    """A curve that falls the faster the better the learning rate is, to where the width lets it; lr 0.01 is best."""
    off = abs(math.log10(config["lr"]) + 2)
    floor = 0.1 + off / 4 + (0.2 if config["width"] == "narrow" else 0.0)
    first = 1
    if checkpoint := tune.get_checkpoint():  # the trial was interrupted: go on where it was
        first = checkpoint.to_dict()["epoch"] + 1
    for epoch in range(first, EPOCHS + 1):
        loss = floor + math.exp(-epoch / (3 + 4 * off))
        tune.report({"loss": loss}, checkpoint=tune.Checkpoint.from_dict({"epoch": epoch}))


if __name__ == "__main__":
    analysis = tune.run(
        train,
        name="auto_search",
        config={"lr": tune.loguniform(1e-5, 1.0), "width": tune.choice(["narrow", "wide"])},
        search_alg="auto",
        stop={"training_iteration": EPOCHS},  # tells it how long a whole training is
        metric="loss",
        mode="min",
        num_samples=30,
        keep_checkpoints_num=1,
        seed=1,
        resume="AUTO",
    )
    print("best config:", analysis.best_config)
    print("best loss:", round(analysis.best_result["loss"], 3))
    trained = sum(trial.iteration for trial in analysis.trials)
    print("epochs trained:", trained, "of", EPOCHS * len(analysis.trials))
