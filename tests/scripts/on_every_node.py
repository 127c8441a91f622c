"""Two runs by one RayExecutor, of trials that wait until every node has one: `... ADDRESS RESULTS SHARED`."""

import json
import os
import socket
import sys
import time
from pathlib import Path

from beside import double

import tuner as tune
from tuner.executors import RayExecutor


def train(config):
    held = tune.get_checkpoint()
    start = held.to_dict()["i"] if held else 0
    Path(config["shared"], socket.gethostname()).touch()
    while len(os.listdir(config["shared"])) < 2:  # both nodes are to have something to do
        time.sleep(0.05)
    for i in range(start + 1, 6):
        print("step", i, "on", socket.gethostname())
        tune.report(
            {"loss": double(config["x"]) * i, "host": socket.gethostname()},
            checkpoint=tune.Checkpoint.from_dict({"i": i}),
        )


if __name__ == "__main__":
    given = {
        "executor": RayExecutor(address=sys.argv[1]),
        "storage_path": sys.argv[2],
        "metric": "loss",
        "mode": "min",
        "verbose": 2,
        "keep_checkpoints_num": 2,
        "checkpoint_score_attr": "min-loss",
    }
    space = {"x": tune.grid_search([1, 2, 3, 4]), "shared": sys.argv[3]}
    analysis = tune.run(train, name="exp", config=space, **given)
    again = tune.run(train, name="again", config=space, **given)  # by the very same executor
    print("AGAIN", [trial.last_result["training_iteration"] for trial in again.trials])
    hosts = {trial.dirname: trial.last_result["host"] for trial in analysis.trials}
    kept = {t.dirname: sorted(p for p in os.listdir(t.path) if p.startswith("checkpoint")) for t in analysis.trials}
    logs = {trial.dirname: open(trial.path + "/stdout").read().count("step") for trial in analysis.trials}
    best = analysis.best_checkpoint.to_dict()
    print("FOUND", json.dumps({"hosts": hosts, "kept": kept, "logs": logs, "best": best}))
