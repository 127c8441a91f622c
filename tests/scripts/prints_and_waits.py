"""A run whose trials print, as colours and a progress bar too, and wait for a file. usage: ... STORAGE GO"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import tuner as tune


def train(config: dict[str, Any]) -> None:
    print(f"\x1b[32mtrial {config['x']}\x1b[0m begins")
    sys.stderr.write("  0%|\r 50%|\r100%|\n")
    tune.report({"loss": config["x"]})
    while config["x"] == 2 and not Path(config["go"]).exists():
        time.sleep(0.02)
    if config["x"] == 1:
        raise ValueError("as configured")
    print("and ends")
    tune.report({"loss": config["x"] / 2})


if __name__ == "__main__":
    tune.run(
        train,
        name="waits",
        storage_path=sys.argv[1],
        metric="loss",
        mode="min",
        config={"x": tune.grid_search([0, 1, 2]), "go": sys.argv[2]},
        max_concurrent_trials=2,
        raise_on_failed_trial=False,
        verbose=0,
        resume="AUTO",
        sync_config=tune.SyncConfig(upload_dir=f"{sys.argv[1]}/copy"),
    )
