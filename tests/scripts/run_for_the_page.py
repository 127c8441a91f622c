"""A run that goes on until a file says that it is enough: `python run_for_the_page.py DIRECTORY`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import tuner as tune


class Counts(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.count = 0
        print("a line of output", flush=True)

    def step(self) -> dict[str, Any]:
        time.sleep(0.1)  # a step takes its time
        self.count += 1
        return {"score": self.config["rate"] * self.count, "done": os.path.exists(self.config["enough"])}

    def save_checkpoint(self, directory: str) -> None:
        Path(directory, "count").write_text(str(self.count))

    def load_checkpoint(self, directory: str) -> None:
        self.count = int(Path(directory, "count").read_text())


if __name__ == "__main__":
    tune.run(
        Counts,
        name="live",
        storage_path=sys.argv[1],
        config={"rate": tune.grid_search([1.0, 2.0, 3.0]), "enough": f"{sys.argv[1]}/enough"},
        resume="AUTO",
        metric="score",
        mode="max",
        verbose=0,
        checkpoint_freq=2,
        keep_checkpoints_num=2,
        resources_per_trial={"cpu": 0.2},
        raise_on_failed_trial=False,
    )
