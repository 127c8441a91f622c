"""PB2: population based training whose new configs come from a Gaussian process. Needs `pip install "tuner[sklearn]"`.

python examples/pb2.py
"""

from __future__ import annotations

import tuner as tune
from tuner.schedulers.pb2 import PB2


class Hill(tune.Trainable):
    """Progress per step is best near rate 0.3 and momentum 0.9."""

    def setup(self, config: dict) -> None:
        self.height = 0.0

    def step(self) -> dict:
        self.height += 1.0 - abs(self.config["rate"] - 0.3) - abs(self.config["momentum"] - 0.9)
        return {"height": self.height}

    def save_checkpoint(self, checkpoint_dir: str) -> dict:
        return {"height": self.height}

    def load_checkpoint(self, checkpoint: dict) -> None:
        self.height = checkpoint["height"]


if __name__ == "__main__":
    analysis = tune.run(
        Hill,
        name="pb2",
        resume="AUTO",
        config={"rate": tune.uniform(0, 1), "momentum": tune.uniform(0, 1)},
        num_samples=4,
        metric="height",
        mode="max",
        scheduler=PB2(
            time_attr="training_iteration",
            perturbation_interval=4,
            hyperparam_bounds={"rate": [0.0, 1.0], "momentum": [0.0, 1.0]},
            synch=True,
        ),
        stop={"training_iteration": 24},
        keep_checkpoints_num=1,
        seed=1,
    )
    print("clones:", sum(len(trial.clones) for trial in analysis.trials))
    print("best config:", analysis.best_config)
