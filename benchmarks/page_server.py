"""The server of `tuner ui` with 100,000 trials: the first reading, its memory, and the table's data.

The experiment is a simulated run of ASHA in a directory of tmpfs, made first. `read_cpu_s` is CPU time of the whole
first reading, which others on the machine do not change, `read_s` is by the clock; `bytes_per_trial` is what it
holds then, beyond what it held before; `trials_s` is the making of trials.json.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from measuring import main, timed_script

MEMORY = Path("/dev/shm")
SOURCE = """
import json, subprocess, sys, time
import psutil
COUNT = int(sys.argv[2])
if len(sys.argv) == 3:
    import tuner as tune
    from tuner.executors import SimulatedExecutor
    from tuner.schedulers import ASHAScheduler

    def train(config):
        pass

    def model(config):
        return [(1.0, {"loss": config["x"] / (step + 1)}) for step in range(10)]

    tune.run(train, name="run", config={"x": tune.uniform(0, 1), "y": tune.loguniform(1e-4, 1)}, metric="loss",
             mode="min", num_samples=COUNT, seed=1, scheduler=ASHAScheduler(max_t=10, reduction_factor=4),
             storage_path=sys.argv[1], verbose=0, executor=SimulatedExecutor(model, slots=4, directories=False))
    subprocess.run([sys.executable, __file__, sys.argv[1], sys.argv[2], "read"], check=True)
else:
    from tuner.ui.served_places import Places
    from tuner.ui.views.data import data_of

    process = psutil.Process()
    places = Places([sys.argv[1] + "/run"])
    (live,) = places.all()
    before, began, cpu = process.memory_info().rss, time.perf_counter(), time.process_time()
    live.start()
    live.ready.wait()
    read, read_cpu = time.perf_counter() - began, time.process_time() - cpu
    live.index()
    held = process.memory_info().rss
    began = time.perf_counter()
    size = len(data_of(live, "trials", {}, {}))
    print("MARK", json.dumps({
        "read_s": read, "read_cpu_s": read_cpu, "bytes_per_trial": (held - before) / COUNT, "held_mb": held / 1e6,
        "trials_s": time.perf_counter() - began, "trials_mb": size / 1e6,
    }), flush=True)
    places.close()
"""


def _ours() -> dict[str, Any]:
    if MEMORY.is_dir():
        os.environ["BENCH_DIR"] = str(MEMORY)
    found: dict[str, Any] = timed_script(SOURCE, os.environ.get("BENCH_TRIALS", "100000"))[0]
    return found


if __name__ == "__main__":
    main({"ours": _ours})
