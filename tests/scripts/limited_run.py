"""A run with limits, which waits for a line on its standard input. usage: limited_run.py STORAGE"""

from __future__ import annotations

import sys
from typing import Any

import tuner as tune
from tuner.executors import InlineExecutor


def train(config: dict[str, Any]) -> None:
    tune.report({"loss": 1.0}, checkpoint=tune.Checkpoint.from_dict({"step": 1}))
    tune.report({"loss": 0.5})
    print("saved", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    tune.run(
        train,
        name="limited",
        storage_path=sys.argv[1],
        checkpoint_budget="5MB",
        time_budget_s=3600,
        max_concurrent_trials=3,
        verbose=0,
        executor=InlineExecutor(),
    )
