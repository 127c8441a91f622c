"""Orders: how long until one has its effect, what a run without any pays for them, and what forks of a trunk cost.

The time is that from the order's file in place to its answer "done", of notes, saves, pauses and goes to a run whose
steps take 20 ms, given at random moments: the driver looks once a second. Calls are those into the modules of orders,
in a run of 2,000 more results. Forks: one trunk of 30 steps, then 8 tails of 5 from its last checkpoint, each of
which saves 4 MB at its end; bytes of checkpoints on the disk and in a replica, of those with distinct content.
"""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from measuring import main, median, storage, timed_script

RUN = """
import os, sys, time
import tuner as tune

class Waits(tune.Trainable):
    def setup(self, config):
        self.count = 0
    def step(self):
        time.sleep(0.02)
        self.count += 1
        return {"count": self.count}
    def save_checkpoint(self, directory):
        return {"count": self.count}
    def load_checkpoint(self, checkpoint):
        self.count = checkpoint["count"]

tune.run(Waits, name="e", num_samples=2, storage_path=sys.argv[1], verbose=0, keep_checkpoints_num=1,
         resources_per_trial={"cpu": 0.5})
"""
COUNTED = """
import cProfile, json, sys
import tuner as tune
from tuner.driver import loop

loop.LOOK_S = 1e9  # what a look costs, once a second, is not a matter of results
FILES = ("/orders/", "/steering.py", "/trial_orders.py", "/pins.py", "/new_trials.py", "/changed_settings.py")

def train(config):
    for count in range(config["results"]):
        tune.report({"count": count})

def calls(results):
    profile = cProfile.Profile()
    profile.enable()
    tune.run(train, config={"results": results}, storage_path=sys.argv[1], verbose=0, executor="inline")
    profile.disable()
    return sum(each.callcount for each in profile.getstats()
               if hasattr(each.code, "co_filename") and any(name in each.code.co_filename for name in FILES))

print("MARK", json.dumps(calls(3_000) - calls(1_000)))
"""
TRUNK = """
import json, os, sys
import tuner as tune
from tuner.orders.giving import give
from pathlib import Path

SIZE = 4_000_000

class Trains(tune.Trainable):
    def setup(self, config):
        self.count = 0
    def step(self):
        self.count += 1
        with open(self.config["steps"], "a") as file:
            file.write("1\\n")
        return {"count": self.count, "done": self.count == self.config["until"]}
    def save_checkpoint(self, directory):
        weights = (f"{self.config['rate']}-{self.count}-".encode() * SIZE)[:SIZE]
        Path(directory, "weights").write_bytes(weights)
        Path(directory, "count").write_text(str(self.count))
    def load_checkpoint(self, directory):
        self.count = int(Path(directory, "count").read_text())

def run():
    tune.run(Trains, name="e", config={"until": 30, "rate": 0, "steps": sys.argv[1] + "/steps"}, resume="AUTO",
             storage_path=sys.argv[1] + "/results", verbose=0, checkpoint_at_end=True,
             sync_config=tune.SyncConfig(upload_dir=sys.argv[1] + "/there"))

run()
for rate in range(1, 9):
    order = {"order": "fork", "trial": "0", "iteration": 30, "config": {"until": 35, "rate": rate}}
    give(Path(sys.argv[1], "results", "e"), order, if_dead="wait")
run()
"""


def _latency() -> dict[str, float]:
    from tuner.orders.giving import give

    taken: dict[str, list[float]] = {"note": [], "save": [], "pause": [], "go": []}
    rng = random.Random(1)
    with storage() as place:
        script, root = Path(place, "script.py"), Path(place, "e")
        script.write_text(RUN)
        with subprocess.Popen([sys.executable, str(script), place]) as process:
            try:
                while not list(root.glob("Waits_*")):
                    time.sleep(0.05)
                for turn in range(10):
                    for word, times in taken.items():
                        time.sleep(rng.random())
                        more = {"text": f"note {turn}"} if word == "note" else {}
                        order = give(root, {"order": word, "trial": "0", **more})
                        began = time.monotonic()
                        while order.state not in ("done", "refused"):
                            time.sleep(0.005)
                        if order.state != "done":
                            raise RuntimeError(repr(order))
                        times.append(time.monotonic() - began)
            finally:
                process.kill()
    every = [one for times in taken.values() for one in times]
    return {"effect_s": median(every), "slowest_s": max(every), **{f"{word}_s": median(taken[word]) for word in taken}}


def _stored(root: Path) -> tuple[int, int]:
    """Bytes of checkpoints that lie there, and of those with distinct content; what reflinks share counts once."""
    files = [path for path in root.rglob("*/checkpoint_*/*") if path.is_file() and not path.name.startswith(".")]
    distinct = {hashlib.sha256(path.read_bytes()).digest(): path.stat().st_size for path in files}
    return sum(path.stat().st_size for path in files), sum(distinct.values())


def _forks() -> dict[str, float]:
    with storage() as place:
        script = Path(place, "script.py")
        script.write_text(TRUNK)
        subprocess.run([sys.executable, str(script), place], check=True)
        steps = len(Path(place, "steps").read_text().splitlines())
        (here, distinct), (there, _) = _stored(Path(place, "results")), _stored(Path(place, "there"))
        return {"steps": steps, "stored_of_distinct": here / distinct, "replica_of_distinct": there / distinct}


def _ours() -> dict[str, Any]:
    (calls,) = timed_script(COUNTED)
    return {**_latency(), "calls_per_result": calls / 2_000, **_forks()}


if __name__ == "__main__":
    main({"ours": _ours})
