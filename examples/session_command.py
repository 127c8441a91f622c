"""A session around a command: each call trains a while in a directory of files, which is the checkpoint."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import tuner as tune

STEPS = 6
TRAIN = """
import json, sys, pathlib
state, momentum = pathlib.Path(sys.argv[1], "state.json"), float(sys.argv[2])
x, speed = json.loads(state.read_text()) if state.exists() else (10.0, 0.0)
for _ in range(5):
    speed = momentum * speed - 0.1 * 2 * x
    x += speed
state.write_text(json.dumps([x, speed]))
print(json.dumps({"loss": x * x}))
"""


if __name__ == "__main__":
    with tune.open_session(
        "session_command",
        config={"momentum": tune.grid_search([0.0, 0.3, 0.6, 0.9])},
        metric="loss",
        mode="min",
    ) as session:
        while (trial := session.ask(wait=True)) is not None:
            with tempfile.TemporaryDirectory() as directory:
                if trial.checkpoint is not None:
                    trial.checkpoint.to_directory(Path(directory))
                for _ in range(trial.iteration, STEPS):
                    command = [sys.executable, "-c", TRAIN, directory, str(trial.config["momentum"])]
                    done = subprocess.run(command, capture_output=True, text=True, check=False)
                    if done.returncode:
                        trial.fail(done.stderr)
                        break
                    trial.report(json.loads(done.stdout), tune.Checkpoint.from_directory(directory))
                else:
                    trial.finish()
    analysis = tune.ExperimentAnalysis(session.path, metric="loss", mode="min")
    print("best config:", analysis.best_config)
    print("its loss:", analysis.best_result["loss"])
