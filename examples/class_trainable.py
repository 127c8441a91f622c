"""A class trainable: `step` after `step`, saved every fifth one and at the end, through the Tuner."""

from __future__ import annotations

import json
import os

import tuner as tune


class Walk(tune.Trainable):
    """Walk down a parabola; the learning rate decides how fast."""

    def setup(self, config: dict) -> None:
        self.x = 10.0

    def step(self) -> dict:
        self.x -= self.config["lr"] * 2 * self.x
        return {"loss": self.x**2}

    def save_checkpoint(self, directory: str) -> None:
        with open(os.path.join(directory, "x.json"), "w") as file:
            json.dump(self.x, file)

    def load_checkpoint(self, directory: str) -> None:
        with open(os.path.join(directory, "x.json")) as file:
            self.x = json.load(file)


if __name__ == "__main__":
    place = "~/tuner_results/class_trainable"
    if tune.Tuner.can_restore(place):  # continue, or show the results of what has ended
        tuner = tune.Tuner.restore(place, Walk)
    else:
        tuner = tune.Tuner(
            Walk,
            param_space={"lr": tune.uniform(0.01, 0.5)},
            tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=4),
            run_config=tune.RunConfig(
                name="class_trainable",
                stop={"training_iteration": 20},
                checkpoint_config=tune.CheckpointConfig(num_to_keep=2, checkpoint_frequency=5, checkpoint_at_end=True),
                seed=1,
            ),
        )
    best = tuner.fit().get_best_result()
    print("best config:", best.config)
    print("best loss:", best.metrics["loss"])
    print("its checkpoint:", best.checkpoint.path)
