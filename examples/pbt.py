"""Population based training: the worst go on from the best ones' checkpoints, with their configs a little changed.

python examples/pbt.py
"""

from __future__ import annotations

import tuner as tune
from tuner.schedulers import PopulationBasedTraining


class Chase(tune.Trainable):
    """The best rate changes while it learns, so that no fixed config is good all along."""

    def setup(self, config: dict) -> None:
        self.score = 0.0

    def step(self) -> dict:
        best = 0.1 if self.iteration < 20 else 0.6
        self.score += 1.0 - abs(self.config["rate"] - best)
        return {"score": self.score, "rate": self.config["rate"]}

    def save_checkpoint(self, checkpoint_dir: str) -> dict:
        return {"score": self.score}

    def load_checkpoint(self, checkpoint: dict) -> None:
        self.score = checkpoint["score"]


if __name__ == "__main__":
    analysis = tune.run(
        Chase,
        name="pbt",
        resume="AUTO",
        config={"rate": tune.uniform(0, 1)},
        num_samples=6,
        metric="score",
        mode="max",
        scheduler=PopulationBasedTraining(
            time_attr="training_iteration",
            perturbation_interval=5,
            hyperparam_mutations={"rate": tune.uniform(0, 1)},
            synch=True,
        ),
        stop={"training_iteration": 40},
        keep_checkpoints_num=1,
        seed=1,
    )
    for trial in analysis.trials:
        for clone in trial.clones:
            print(f"{trial} at {clone.iteration}: from {clone.donor.trial_id}, {clone.changed}")
    print("best score:", round(analysis.best_result["score"], 2))
