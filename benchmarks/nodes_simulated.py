"""A simulated cluster: 1,000 nodes, 100,000 trials of ten results, every twentieth node lost on the way.

Trials that a node takes along begin again elsewhere; at the end each of them is accounted for, or the run fails. CPU
time of `tune.run` per result that the driver heard, beside that of 10,000 trials on 10 nodes; the journal is in memory
(tmpfs) where that can be.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from measuring import main, timed_script

MEMORY = Path("/dev/shm")
SOURCE = """
import json, random, sys, time
import tuner as tune
from tuner.executors import SimulatedExecutor

NODES, COUNT, RESULTS = int(sys.argv[2]), int(sys.argv[3]), 10
chance = random.Random(1)
heard = 0

class Watch(tune.Callback):
    changes_results = False
    def on_trial_result(self, **info):
        global heard
        heard += 1

def train(config):
    pass

def model(config):
    own = random.Random(config["x"])
    return [(1 + own.random(), {"loss": config["x"] / (step + 1)}) for step in range(RESULTS)]

length = COUNT * RESULTS * 1.5 / NODES
losses = [(chance.uniform(0, length), node) for node in chance.sample(range(NODES), NODES // 20)]
executor = SimulatedExecutor(model, slots=1, nodes=NODES, losses=losses, directories=False)
cpu = time.process_time()
analysis = tune.run(train, config={"x": tune.uniform(0, 1)}, metric="loss", mode="min", num_samples=COUNT, seed=1,
                    storage_path=sys.argv[1], verbose=0, callbacks=[Watch()], executor=executor)
cpu = time.process_time() - cpu
assert len(analysis.trials) == COUNT
assert all(trial.status == "TERMINATED" and trial.iteration == RESULTS for trial in analysis.trials)
again = sum(trial.attempt > 1 for trial in analysis.trials)
print("MARK", json.dumps({"cpu_s": cpu, "us_per_result": cpu / heard * 1e6, "began_again": again, "results": heard}))
"""


def _ours() -> dict[str, Any]:
    if MEMORY.is_dir():
        os.environ["BENCH_DIR"] = str(MEMORY)
    many = timed_script(SOURCE, "1000", "100000")[0]
    few = timed_script(SOURCE, "10", "10000")[0]
    return {**many, "of_ten_nodes": many["us_per_result"] / few["us_per_result"]}


if __name__ == "__main__":
    main({"ours": _ours})
