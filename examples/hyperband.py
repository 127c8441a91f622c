"""HyperBand: trials pause at the rungs of their bracket, and the best of each rung go on.

python examples/hyperband.py
"""

from __future__ import annotations

import tuner as tune
from tuner.schedulers import HyperBandScheduler


class Curve(tune.Trainable):
    """A learning curve: `speed` says how fast it rises, `height` to where."""

    def setup(self, config: dict) -> None:
        self.score = 0.0

    def step(self) -> dict:
        self.score += self.config["speed"] * (self.config["height"] - self.score)
        return {"score": self.score}

    def save_checkpoint(self, checkpoint_dir: str) -> dict:
        return {"score": self.score}  # a pause needs it: the trial's process ends meanwhile

    def load_checkpoint(self, checkpoint: dict) -> None:
        self.score = checkpoint["score"]


if __name__ == "__main__":
    analysis = tune.run(
        Curve,
        name="hyperband",
        resume="AUTO",
        config={"speed": tune.uniform(0.02, 0.3), "height": tune.uniform(0.5, 1.0)},
        num_samples=20,
        metric="score",
        mode="max",
        scheduler=HyperBandScheduler(max_t=27, reduction_factor=3),
        stop={"training_iteration": 27},
        seed=1,
    )
    lengths = sorted(trial.iteration for trial in analysis.trials)
    print("iterations of the trials:", lengths)
    print("best config:", analysis.best_config)
