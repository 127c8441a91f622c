"""A script that runs trials on a cluster, and what a test sees of it: who started, what lives where, what came out."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.servers.cluster import PATIENCE_S, RESULTS, Cluster, Driver, RayHost
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import load_state

STEPS = 6
SCRIPT = """
import json, os, socket, subprocess, sys, time
from pathlib import Path
import tuner as tune
from tuner.executors import RayExecutor

settings = json.loads(sys.argv[1])


def train(config):
    shared, steps = Path(config["shared"]), config["steps"]
    held = tune.get_checkpoint()
    first = held.to_dict()["i"] if held else 0
    context = tune.get_context()
    number, host = context.get_trial_id().rpartition("_")[2], socket.gethostname()
    name = 101 + int(number[1:]) if number[0] == "o" else int(number) + 1
    stubborn = "trap '' TERM HUP INT; echo $$ > $0; while :; do sleep 1; done"
    child = shared / f"child-{name}-{host}-{os.getpid()}"
    subprocess.Popen(["setsid", "sh", "-c", stubborn, str(child)], stdin=subprocess.DEVNULL)
    while not child.exists():
        time.sleep(0.02)
    with (shared / f"starts-{name}").open("a") as file:
        file.write(json.dumps([first, host, os.getpid()]) + "\\n")
    for i in range(first + 1, steps + 1):
        while i > config["free"] and not any((shared / f"go{end}").exists() for end in ("", f"-{name}")):
            if context.should_stop():
                tune.report({"i": i, "host": host, "score": i}, checkpoint=tune.Checkpoint.from_dict({"i": i}))
                return
            time.sleep(0.05)
        time.sleep(config["pause"])
        result = {"i": i, "host": host, "score": i + config.get("lr", 0)}
        tune.report(result, checkpoint=tune.Checkpoint.from_dict({"i": i, "rest": bytes(config["size"])}))


if __name__ == "__main__":
    shared = settings.pop("shared")
    free, steps, x = settings.pop("free", 3), settings.pop("steps"), settings.pop("x", [1, 2, 3, 4])
    more, pause = {"size": settings.pop("size", 0)}, settings.pop("pause", 0)
    if settings.pop("population", False):
        settings["scheduler"] = tune.schedulers.PopulationBasedTraining(
            time_attr="training_iteration", perturbation_interval=2,
            hyperparam_mutations={"lr": tune.uniform(0, 100)}, synch=True,
        )
        more["lr"] = tune.uniform(0, 100)
    if "upload_dir" in settings:
        settings["sync_config"] = tune.SyncConfig(upload_dir=settings.pop("upload_dir"))
    print("DRIVER", os.getpid())
    analysis = tune.run(
        train,
        config={"x": tune.grid_search(x), "shared": shared, "free": free, "steps": steps, "pause": pause, **more},
        executor=RayExecutor(address=settings.pop("address")),
        **{"resume": "AUTO", "metric": "score", "mode": "max", "keep_checkpoints_num": 1,
           "raise_on_failed_trial": False, **settings},
    )
    found = {}
    for trial in analysis.trials:
        told = Path(trial.path) / "result.json"
        rows = [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []
        kept = sorted(entry for entry in os.listdir(trial.path) if entry.startswith("checkpoint"))
        found[str(trial.index + 1)] = {
            "status": trial.status, "failures": trial.num_failures, "i": [row.get("i") for row in rows],
            "kept": kept, "hosts": [row.get("host") for row in rows], "dirname": trial.dirname,
        }
    print("FOUND", json.dumps(found))
"""

DRAIN = """
import sys
from ray._raylet import GcsClient
from ray.core.generated.autoscaler_pb2 import DrainNodeReason
from ray.core.generated.gcs_pb2 import GcsNodeInfo

client = GcsClient(address=sys.argv[1])
(node,) = [node.node_id.hex() for node in client.get_all_node_info().values()
           if node.node_manager_address == sys.argv[2] and node.state == GcsNodeInfo.ALIVE]
accepted, why = client.drain_node(node, DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION"), "maintenance", 0)
assert accepted, why
"""
"""A script: let the node at an address be drained."""


class Run:
    """One experiment of `SCRIPT` on a cluster.

    Args:
        results: the storage path, a shared one; default: every host's own.
        settings: of `tune.run`, `upload_dir`, and `x` (one trial each), `steps`, `free`: steps that wait for no `go`,
            `pause`: seconds that a step takes at least, and `size`: bytes of a checkpoint.
    """

    def __init__(self, cluster: Cluster, results: str = RESULTS, **settings: Any) -> None:
        self.cluster, self.results = cluster, results
        self.name = f"e{len(list(cluster.shared.iterdir()))}"
        self.signs = cluster.shared / self.name
        self.signs.mkdir()
        self.settings = {
            "shared": str(self.signs),
            "storage_path": results,
            "address": cluster.address,
            "steps": STEPS,
            "name": self.name,
        } | settings

    def start(self, host: RayHost | None = None, **settings: Any) -> Driver:
        host = self.cluster.hosts[0] if host is None else host
        return host.popen(SCRIPT, json.dumps(self.settings | settings))

    def go(self, x: int | None = None) -> None:
        """Let the trials, or that one, go on to their end."""
        (self.signs / ("go" if x is None else f"go-{x}")).touch()

    def starts(self, x: int) -> list[tuple[int, str, int]]:
        """The attempts of a trial: (step it went on from, host, pid over there)."""
        path = self.signs / f"starts-{x}"
        return [tuple(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []

    def processes(self, host: RayHost) -> list[int]:
        """Living processes of trials on a host, as the test numbers them."""
        return [pid for pid in host.processes() if is_of_trial(pid)]

    def root(self, host: RayHost) -> Path:
        """The experiment's directory on a host, as the test sees it."""
        return host.path(f"{self.results}/{self.name}") if self.results == RESULTS else Path(self.results, self.name)

    def saved(self, host: RayHost, x: int) -> list[str]:
        """Names of a trial's checkpoints on a host's disk."""
        number = f"{x - 1:05d}" if x < 101 else f"o{x - 101:04d}"  # those that were ordered count from 101
        return sorted(path.name for path in self.root(host).glob(f"*_{number}/checkpoint_*"))


def started(cluster: Cluster, **settings: Any) -> tuple[Run, Driver]:
    """Two trials, each with a node to itself, that wait before their fourth step."""
    run = Run(cluster, x=[1, 2], resources_per_trial={"cpu": 2}, **settings)
    script = run.start()
    gate = f"checkpoint_{3:06}"
    until("both wait", lambda: all(run.saved(cluster.hosts[0], x)[-1:] == [gate] for x in (1, 2)), of=script)
    assert sorted(run.starts(x)[0][1] for x in (1, 2)) == ["host1", "host2"]
    return run, script


def found(output: str) -> dict[str, dict[str, Any]]:
    """What the script says at its end."""
    line = next((line for line in output.splitlines() if line.startswith("FOUND ")), None)
    assert line is not None, output
    result: dict[str, dict[str, Any]] = json.loads(line.removeprefix("FOUND "))
    return result


def check_whole(
    output: str, *, failures: Mapping[int, int] | None = None, steps: int = STEPS
) -> dict[str, dict[str, Any]]:
    """Every trial ended, each of its results is there once, and nothing else counted as a failure."""
    seen = found(output)
    for x, trial in seen.items():
        assert trial["status"] == "TERMINATED", output
        assert trial["i"] == list(range(1, steps + 1)), output
        assert trial["failures"] == (failures or {}).get(int(x), 0), output
    return seen


def check_kept(run: Run) -> None:
    """The driver's disk has what the journal knows and no more, other hosts nothing else, and nothing is half done."""
    driver = run.cluster.hosts[0]
    state = load_state(ExperimentPaths(run.root(driver)))
    assert state.trials
    for trial in state.trials:
        known = sorted(record.ref.name for record in trial.checkpoints)
        assert 1 <= len(known) <= 3
        for host in run.cluster.hosts:
            there = run.root(host) / trial.dirname
            names = sorted(os.listdir(there)) if there.is_dir() else []
            found = [name for name in names if name.startswith("checkpoint_")]
            assert found == known if host is driver else set(found) <= set(known), (host.hostname, trial.dirname)
            assert [name for name in names if name.startswith(".")] == [], host.hostname


def until(what: str, holds: Callable[[], Any], *, of: Driver | None = None, within_s: float = 2 * PATIENCE_S) -> Any:
    """Wait until something holds; returns it."""
    end = time.monotonic() + within_s
    while not (result := holds()):
        if of is not None and of.poll() is not None:
            raise AssertionError(f"{what}: the script ended with {of.returncode} before that:\n{of.output}")
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {within_s} s" + (f":\n{of.output}" if of is not None else ""))
        time.sleep(0.05)
    return result


def is_of_trial(pid: int) -> bool:
    """Whether a process, as the test numbers it, belongs to a trial."""
    try:
        return b"TUNER_OWNER=" in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def number_there(pid: int) -> int:
    """The number of a process on its host."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("NSpid:")).split()[-1])
