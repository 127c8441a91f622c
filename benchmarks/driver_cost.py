"""The driver's CPU time per result at trial 10,000 relative to trial 100, and its memory per finished trial.

Simulated executor, four trials at a time, ten results each, JSON, CSV and TensorBoard files off (they belong to a
trial, not to the number of trials). Windows of 100 trials, garbage collection as it comes. Memory: resident bytes at
trial 2,000 and at the end.
"""

from __future__ import annotations

from typing import Any

from measuring import main, timed_script

SOURCE = """
import json, os, sys, time
import psutil
import tuner as tune
from tuner.executors import SimulatedExecutor
from tuner.logger import LoggerCallback

WINDOWS = ((50, 150), (9_950, 10_050))
COUNT, RESULTS = 10_100, 10
process, marks, resident = psutil.Process(), {}, {}

class Watch(LoggerCallback):  # a logger, so that the default ones stay away
    done = 0
    def on_trial_complete(self, **info):
        Watch.done += 1
        marks[Watch.done] = time.process_time()
        if Watch.done in (2_000, COUNT):
            resident[Watch.done] = process.memory_info().rss

def train(config):
    pass

def model(config):
    return [(1.0, {"loss": config["x"] / (step + 1), "accuracy": 0.5}) for step in range(RESULTS)]

tune.run(train, config={"x": tune.uniform(0, 1)}, metric="loss", mode="min", num_samples=COUNT,
         storage_path=sys.argv[1], verbose=0, callbacks=[Watch()], executor=SimulatedExecutor(model, slots=4), seed=1)
cost = [(marks[last] - marks[first]) / ((last - first) * RESULTS) for first, last in WINDOWS]
print("MARK", json.dumps({
    "us_per_result_at_100": cost[0] * 1e6,
    "us_per_result_at_10000": cost[1] * 1e6,
    "growth": cost[1] / cost[0],
    "bytes_per_finished_trial": (resident[COUNT] - resident[2_000]) / (COUNT - 2_000),
}))
"""


def _ours() -> dict[str, Any]:
    found: dict[str, Any] = timed_script(SOURCE)[0]
    return found


if __name__ == "__main__":
    main({"ours": _ours})
