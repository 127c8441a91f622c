"""A run that waits to be ended, and says to a command how it was. usage: hooked_run.py STORAGE TOLD"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import tuner as tune


def train(config: dict[str, Any]) -> None:
    tune.report({"loss": config["x"]}, checkpoint=tune.Checkpoint.from_dict({}))
    while not Path(config["storage"], "go").exists() and not tune.get_context().should_stop():
        time.sleep(0.02)


if __name__ == "__main__":
    tune.run(
        train,
        name="hooked",
        storage_path=sys.argv[1],
        config={"x": tune.grid_search([2, 1]), "storage": sys.argv[1]},
        metric="loss",
        mode="min",
        resume="AUTO",
        verbose=3,
        on_end=f"cat >> {sys.argv[2]}",
    )
