"""A Ray cluster of two hosts on this machine (network namespaces, a disk and two CPUs each), ours and Ray Tune on it.

`first_result_s`: from `tune.run`, the connection to the running cluster included, to the first result in the driver.
`trials_per_s`: one-report trials, between the first result and the last. `results_per_s`: four trials that only report,
JSON and CSV written. `move_of_rsync`: a checkpoint of 100 MB from the host of its trial until the driver has it, of the
time that plain rsync over ssh takes for the same files. `after_loss_s`: the processes of a host die; from the last
result of its trial, one each 0.05 s, to the next one on another host. Needs root. Ray Tune gets its storage in the
directory that both hosts share: without one it cannot run on two hosts.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measuring import QUIET, main, median

from tests.servers.cluster import Cluster, RayHost, ray_cluster

WITHIN_S = 600.0
TUNE = """
import json, sys, time
began = time.time()
{imports}

class Count(tune.Callback):
    times = []
    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.times.append(time.time())

def train(config):
    for step in range(config["count"]):
        tune.report({{"loss": 1 / (step + 1), "step": step}})

address, storage, samples, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
{connect}
tune.run(train, config={{"count": count}}, num_samples=samples, storage_path=storage, verbose=0, {more}
         callbacks=[JsonLoggerCallback(), CSVLoggerCallback(), Count()])
print("MARK", json.dumps([began, *Count.times]))
"""
OURS = TUNE.format(
    imports="import tuner as tune\nfrom tuner.executors import RayExecutor\n"
    "from tuner.logger import CSVLoggerCallback, JsonLoggerCallback",
    connect="",
    more="executor=RayExecutor(address),",
)
RAY = TUNE.format(
    imports="import ray\nfrom ray import tune\nfrom ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback",
    connect="ray.init(address=address, log_to_driver=False)",
    more="",
)
MOVE = """
import json, os, subprocess, sys, time
import tuner as tune
from tuner.executors import RayExecutor

class Arrived(tune.Callback):
    saved, times = [], []
    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.saved.append(result["saved"])

    def on_trial_save(self, iteration, trials, trial, **info):
        self.times.append(time.time())

def train(config):
    block = os.urandom(25_000_000)
    for step in range(config["count"]):
        with tune.checkpoint_dir() as directory:
            for number in range(4):
                with open(f"{directory}/{number}", "wb") as file:
                    file.write(block)
        began = time.time()
        tune.report({"saved": began})
        time.sleep(2)

analysis = tune.run(train, config={"count": 4}, storage_path=sys.argv[2], executor=RayExecutor(sys.argv[1]), verbose=0,
                    resources_per_trial={"cpu": 1, "other": 1}, callbacks=[Arrived()])
trial = analysis.trials[0]
plain = []
for turn in range(3):
    began = time.time()
    subprocess.run(["rsync", "-a", f"host2:{trial.checkpoint.path}/", f"/srv/home/plain{turn}/"], check=True)
    plain.append(time.time() - began)
print("MARK", json.dumps([[there - here for here, there in zip(Arrived.saved, Arrived.times)], plain]))
"""
LOSS = """
import json, sys, time
import tuner as tune
from tuner.executors import RayExecutor

times = {1: [], 2: []}

class Seen(tune.Callback):
    def on_trial_result(self, iteration, trials, trial, result, **info):
        times[trial.attempt].append(time.time())

    def on_rollback(self, trial, iteration, **info):
        pass  # with it results that come again are told again

def train(config):
    held = tune.get_checkpoint()
    first = held.to_dict()["step"] + 1 if held else 0
    for step in range(first, 10_000):
        tune.report({"step": step}, checkpoint=tune.Checkpoint.from_dict({"step": step}))
        if held and step > first + 3:
            return
        time.sleep(0.05)

tune.run(train, storage_path=sys.argv[2], executor=RayExecutor(sys.argv[1]), verbose=0, callbacks=[Seen()],
         keep_checkpoints_num=1, resources_per_trial={"cpu": 1, "spot": 1})
before, after = max(times[1]), min(times[2])
print("MARK", json.dumps(after - before))
"""


def _mark(host: RayHost, source: str, *arguments: str) -> Any:
    said = host.run(source, *arguments, within_s=WITHIN_S, env=QUIET)
    return json.loads(next(line[5:] for line in said.splitlines() if line.startswith("MARK ")))


def _tune(cluster: Cluster, source: str, trials: int, results: int, storage: Path) -> dict[str, float]:
    head = cluster.hosts[0]
    began, *times = _mark(head, source, cluster.address, f"{storage}/one", str(trials), "1")
    _, *many = _mark(head, source, cluster.address, f"{storage}/many", "4", str(results))
    return {
        "first_result_s": times[0] - began,
        "trials_per_s": (len(times) - 1) / (times[-1] - times[0]),
        "results_per_s": (len(many) - 1) / (many[-1] - many[0]),
    }


def _ours() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        with ray_cluster(Path(directory), resources=[{}, {"other": 1}], size="2g") as cluster:
            found: dict[str, Any] = _tune(cluster, OURS, 200, 5_000, Path("/srv/results"))
            moved, plain = _mark(cluster.hosts[0], MOVE, cluster.address, "/srv/results")
            found |= {"move_s": median(moved), "move_of_rsync": median(moved) / median(plain)}
            found["after_loss_s"] = _after_loss(cluster)
            return found


def _after_loss(cluster: Cluster) -> float:
    head = cluster.hosts[0]
    third = cluster.add_host(resources={"spot": 1})
    driver = head.popen(LOSS, cluster.address, "/srv/results", env=QUIET)
    end = time.monotonic() + WITHIN_S
    while not list(third.path("/srv/results").glob("*/*/checkpoint_*")):
        if driver.poll() is not None or time.monotonic() > end:
            raise RuntimeError(driver.output)
        time.sleep(0.05)
    cluster.add_host(resources={"spot": 1})  # where the trial is to go on
    third.kill()
    said = driver.ends(WITHIN_S)
    return float(json.loads(next(line[5:] for line in said.splitlines() if line.startswith("MARK "))))


def _ray() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory, ray_cluster(Path(directory)) as cluster:
        return _tune(cluster, RAY, 12, 500, cluster.shared)


if __name__ == "__main__":
    main({"ours": _ours, "ray": _ray})
