"""ASHA over 100,000 simulated trials of ten results each: time, growth, and memory per finished trial.

Journal in memory (a directory of tmpfs), no directory and no files per trial, four trials at a time. Every trial is a
little better than those before it, so that none is stopped and all ten results of each pass the rungs: a million
results. CPU time is that of the process from the call of `tune.run` to its return; `quiet` is the same at the pace of
the quickest tenth of the windows of 100 trials, which says more where others use the machine too. Growth: of the
median window in the last tenth to that in the first, and of the function calls, Python's and C's, of 100 trials.
Memory: resident bytes at 2,000 trials and at the end. `stopped`: the same with random results, of which ASHA stops
most, so that a trial has two results; CPU time per trial.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from measuring import main, timed_script

MEMORY = Path("/dev/shm")
SOURCE = """
import cProfile, itertools, json, sys, time
import psutil
import tuner as tune
from tuner.executors import SimulatedExecutor
from tuner.schedulers import ASHAScheduler

COUNT, RESULTS, WINDOW, GOOD = int(sys.argv[2]), 10, 100, sys.argv[3] == "better"
TENTH = COUNT // 10
COUNTED = (TENTH, COUNT - 2 * WINDOW)
process, marks, resident, results = psutil.Process(), [], {}, 0
counting = {first: cProfile.Profile() for first in COUNTED}
numbers = itertools.count(1)

class Watch(tune.Callback):
    changes_results = False
    done = 0
    def on_trial_complete(self, trial, **info):
        global results
        results += trial.iteration
        if self.done - WINDOW in counting:
            counting[self.done - WINDOW].disable()
        self.done += 1
        if self.done % WINDOW == 0:
            marks.append((time.thread_time(), results))
        if self.done in (2_000, COUNT):
            resident[self.done] = process.memory_info().rss
        if self.done in counting:
            counting[self.done].enable()

def train(config):
    pass

def model(config):
    height = 1 / next(numbers) if GOOD else config["x"]
    return [(1.0, {"loss": height / (step + 1)}) for step in range(RESULTS)]

executor = SimulatedExecutor(model, slots=4, directories=False)
began, cpu = time.perf_counter(), time.process_time()
tune.run(train, config={"x": tune.uniform(0, 1)}, metric="loss", mode="min", num_samples=COUNT, seed=1,
         scheduler=ASHAScheduler(max_t=RESULTS, grace_period=1, reduction_factor=4),
         storage_path=sys.argv[1], verbose=0, callbacks=[Watch()], executor=executor)
wall, cpu = time.perf_counter() - began, time.process_time() - cpu
pace = [(after[0] - before[0]) / (after[1] - before[1]) for before, after in zip(marks, marks[1:])]
part = len(pace) // 10
# The windows that were counted ran under the profiler.
late, early = (sorted(window)[len(window) // 2] for window in (pace[-part:-3], pace[3:part]))
quick = sorted(pace)[len(pace) // 10]
calls = [sum(entry.callcount for entry in counting[first].getstats()) for first in COUNTED]
print("MARK", json.dumps({
    "cpu_s": cpu, "wall_s": wall, "quiet_s": quick * results, "results": results, "us_per_result": cpu / results * 1e6,
    "growth": late / early, "calls_growth": calls[1] / calls[0], "calls_per_result": calls[1] / (WINDOW * RESULTS),
    "bytes_per_finished_trial": (resident[COUNT] - resident[2_000]) / (COUNT - 2_000),
    "us_per_trial": cpu / COUNT * 1e6,
}))
"""


def _ours() -> dict[str, Any]:
    if MEMORY.is_dir():
        os.environ["BENCH_DIR"] = str(MEMORY)
    found: dict[str, Any] = timed_script(SOURCE, "100000", "better")[0]
    stopped = timed_script(SOURCE, "20000", "random")[0]
    return {**found, "stopped_us_per_trial": stopped["us_per_trial"], "stopped_growth": stopped["growth"]}


if __name__ == "__main__":
    main({"ours": _ours})
