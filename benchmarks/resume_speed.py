"""Resuming an experiment of 10,000 finished trials: from the call of `tune.run` to its return, in a fresh process.

The experiment is made by the simulated executor with three results per trial; one more trial is asked for at the
resume, so that searcher and scheduler come back too.
"""

from __future__ import annotations

from typing import Any

from measuring import main, timed_script

SOURCE = """
import json, subprocess, sys, time
import tuner as tune
from tuner.executors import SimulatedExecutor
from tuner.logger import LoggerCallback

def train(config):
    pass

def model(config):
    return [(1.0, {"loss": config["x"] / (step + 1)}) for step in range(3)]

def run(count):
    tune.run(train, name="big", config={"x": tune.uniform(0, 1)}, metric="loss", mode="min", num_samples=count, seed=1,
             storage_path=sys.argv[1], verbose=0, callbacks=[LoggerCallback()], resume="AUTO",
             executor=SimulatedExecutor(model, slots=4))

if len(sys.argv) == 2:
    run(10_000)
    again = [sys.executable, __file__, sys.argv[1], "again"]
    print(subprocess.run(again, check=True, stdout=subprocess.PIPE, text=True).stdout)
else:
    started = time.perf_counter()
    run(10_001)
    print("MARK", json.dumps({"resume_s": time.perf_counter() - started}))
"""


def _ours() -> dict[str, Any]:
    found: dict[str, Any] = timed_script(SOURCE)[0]
    return found


if __name__ == "__main__":
    main({"ours": _ours})
