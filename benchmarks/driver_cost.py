"""The driver's cost per result at trial 10,000 relative to trial 100, and its memory per finished trial.

Simulated executor, four trials at a time, ten results each, JSON, CSV and TensorBoard files off (they belong to a
trial, not to the number of trials). Cost is given twice. Function calls of the loop's thread in 100 trials, Python's
and C's: these are the same in every run. CPU time of that thread: the median over nine windows of 100 trials each, for
one window costs up to twice what its neighbour does, on the same trials; garbage collection as it comes. Memory:
resident bytes at trial 2,000 and at the end.
"""

from __future__ import annotations

from typing import Any

from measuring import main, timed_script

SOURCE = """
import cProfile, json, os, sys, time
import psutil
import tuner as tune
from tuner.executors import SimulatedExecutor
from tuner.logger import LoggerCallback

COUNT, RESULTS, WINDOW = 10_300, 10, 100
TIMED, COUNTED = (range(200, 1_100, WINDOW), range(9_200, 10_100, WINDOW)), (100, 10_100)
process, marks, resident = psutil.Process(), {}, {}
counting = {first: cProfile.Profile() for first in COUNTED}

class Watch(LoggerCallback):  # a logger, so that the default ones stay away
    done = 0
    def on_trial_complete(self, **info):
        if Watch.done - WINDOW in counting:
            counting[Watch.done - WINDOW].disable()
        Watch.done += 1
        marks[Watch.done] = time.thread_time()
        if Watch.done in (2_000, COUNT):
            resident[Watch.done] = process.memory_info().rss
        if Watch.done in counting:
            counting[Watch.done].enable()

def train(config):
    pass

def model(config):
    return [(1.0, {"loss": config["x"] / (step + 1), "accuracy": 0.5}) for step in range(RESULTS)]

tune.run(train, config={"x": tune.uniform(0, 1)}, metric="loss", mode="min", num_samples=COUNT,
         storage_path=sys.argv[1], verbose=0, callbacks=[Watch()], executor=SimulatedExecutor(model, slots=4), seed=1)
cost = [[(marks[first + WINDOW] - marks[first]) / (WINDOW * RESULTS) for first in part] for part in TIMED]
middle = [sorted(costs)[len(costs) // 2] for costs in cost]
calls = [sum(entry.callcount for entry in counting[first].getstats()) for first in COUNTED]
print("MARK", json.dumps({
    "us_per_result_at_100": middle[0] * 1e6,
    "us_per_result_at_10000": middle[1] * 1e6,
    "growth": middle[1] / middle[0],
    "spread_at_100": max(cost[0]) / min(cost[0]),
    "calls_per_result": calls[1] / (WINDOW * RESULTS),
    "calls_growth": calls[1] / calls[0],
    "bytes_per_finished_trial": (resident[COUNT] - resident[2_000]) / (COUNT - 2_000),
}))
"""


def _ours() -> dict[str, Any]:
    found: dict[str, Any] = timed_script(SOURCE)[0]
    return found


if __name__ == "__main__":
    main({"ours": _ours})
