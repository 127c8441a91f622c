"""A callback of one's own: asks for a checkpoint whenever a trial has become better, and keeps a count over kills.

python examples/custom_callback.py
"""

from __future__ import annotations

from typing import Any

import tuner as tune


class SaveTheBetter(tune.Callback):
    """What it knows is in `get_state`: a resumed run goes on with it."""

    def __init__(self) -> None:
        self.best: dict[str, float] = {}

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict, **info: Any) -> None:
        if result["score"] > self.best.get(trial.trial_id, float("-inf")):
            self.best[trial.trial_id] = result["score"]
            result["should_checkpoint"] = True

    def get_state(self) -> dict:
        return {"best": self.best}

    def set_state(self, state: dict) -> None:
        self.best = state["best"]


class Waves(tune.Trainable):
    def setup(self, config: dict) -> None:
        self.scores = config["scores"]

    def step(self) -> dict:
        return {"score": self.scores[self.iteration], "done": self.iteration == len(self.scores) - 1}

    def save_checkpoint(self, checkpoint_dir: str) -> dict:
        return {}

    def load_checkpoint(self, checkpoint: dict) -> None:
        """Everything is in the config."""


if __name__ == "__main__":
    analysis = tune.run(
        Waves,
        name="custom_callback",
        resume="AUTO",
        config={"scores": [1, 3, 2, 5, 4]},
        callbacks=[SaveTheBetter()],
    )
    (trial,) = analysis.trials
    print("saved at iterations", [record.iteration for record in trial.checkpoints])
