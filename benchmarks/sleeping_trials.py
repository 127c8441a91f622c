"""What 200 trials that sleep cost: CPU of the driver, as a share of one core, and memory of all processes.

Every trial reports once and then sleeps. When all have reported, the driver's CPU is read, and again after 20 s in
which nothing happens. Memory is PSS, which divides what is shared among those who share it (the server that trials are
forked from, keepers and trials), summed over the driver and all that it started.
"""

from __future__ import annotations

import os
from typing import Any

from measuring import main, timed_script

TRIALS = 200
OURS = """
import json, os, sys, threading, time
from pathlib import Path
import tuner as tune

count, idle_s = int(sys.argv[2]), float(sys.argv[3])

def children(pid):
    tasks = Path(f"/proc/{pid}/task").iterdir()
    found = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return found + [each for child in found for each in children(child)]

def pss_kb(pid):
    return next(int(line.split()[1]) for line in open(f"/proc/{pid}/smaps_rollup") if line.startswith("Pss:"))

def look():
    before, began = sum(os.times()[:2]), time.monotonic()
    time.sleep(idle_s)
    share = (sum(os.times()[:2]) - before) / (time.monotonic() - began)
    pids = [os.getpid(), *children(os.getpid())]
    print("MARK", json.dumps({"share": share, "mb": sum(map(pss_kb, pids)) / 1000, "processes": len(pids)}), flush=True)
    os._exit(0)

class Reported(tune.Callback):
    seen = 0

    def on_trial_result(self, **info):
        self.seen += 1
        if self.seen == count:
            threading.Thread(target=look).start()

def train(config):
    import time
    tune.report({"loss": 1.0})
    time.sleep(3600)

share = {"cpu": 0.001}
callbacks = [Reported()]
tune.run(train, num_samples=count, resources_per_trial=share, storage_path=sys.argv[1], callbacks=callbacks, verbose=0)
"""


def _ours() -> dict[str, Any]:
    (found,) = timed_script(OURS, str(TRIALS), os.environ.get("BENCH_IDLE_S", "20"))
    return {"driver_share": found["share"], "memory_mb": found["mb"], "processes": found["processes"]}


if __name__ == "__main__":
    main({"ours": _ours})
