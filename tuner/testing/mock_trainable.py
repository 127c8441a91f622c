"""A trainable that learns nothing and costs nothing, under the name that Ray's examples and tests have for theirs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from trainables.trainable import Trainable

STATE = "checkpoint"


class MyTrainableClass(Trainable):
    """Its curve rises to `config["height"]`, the more slowly the larger `config["width"]` is (both 1 by default).

    It reports "episode_reward_mean", and goes on where a checkpoint left it.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Begin at step 0."""
        self.timestep = 0

    def step(self) -> dict[str, Any]:
        """The next point of the curve."""
        self.timestep += 1
        height, width = float(self.config.get("height", 1)), float(self.config.get("width", 1))
        return {"episode_reward_mean": height * math.tanh(self.timestep / width)}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Save the number of the step."""
        Path(checkpoint_dir, STATE).write_text(json.dumps({"timestep": self.timestep}))

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Load the number of the step."""
        self.timestep = int(json.loads(Path(checkpoint, STATE).read_text())["timestep"])
