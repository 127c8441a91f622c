"""RayExecutor on two real hosts: where trials run, where their checkpoints come to lie, what dies with what."""

from __future__ import annotations

import json

import pytest

from tests.servers.cluster import RESULTS, Cluster

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(400)]

_SCRIPT = """
import json, os, socket, sys
import tuner as tune
from tuner.executors import RayExecutor
from beside import double


def train(config):
    held = tune.get_checkpoint()
    start = held.to_dict()["i"] if held else 0
    for i in range(start + 1, 6):
        print("step", i, "on", socket.gethostname())
        tune.report({"loss": double(config["x"]) * i, "host": socket.gethostname()},
                    checkpoint=tune.Checkpoint.from_dict({"i": i}))


if __name__ == "__main__":
    analysis = tune.run(
        train, config={"x": tune.grid_search([1, 2, 3, 4])}, executor=RayExecutor(address=sys.argv[1]),
        name="exp", storage_path=sys.argv[2], metric="loss", mode="min", keep_checkpoints_num=2, verbose=2,
        checkpoint_score_attr="min-loss",
    )
    hosts = {trial.last_result["host"] for trial in analysis.trials}
    kept = {t.dirname: sorted(p for p in os.listdir(t.path) if p.startswith("checkpoint")) for t in analysis.trials}
    logs = {trial.dirname: open(trial.path + "/stdout").read().count("step") for trial in analysis.trials}
    print("FOUND", json.dumps({"hosts": sorted(hosts), "kept": kept, "logs": logs, "best": analysis.best_checkpoint.to_dict()}))
"""
_BESIDE = "def double(x):\n    return 2 * x\n"


def found(output: str) -> dict:
    line = next(line for line in output.splitlines() if line.startswith("FOUND "))
    return json.loads(line.removeprefix("FOUND "))


def test_trials_run_on_every_node_and_their_checkpoints_come_to_the_driver(cluster: Cluster) -> None:
    driver, other = cluster.hosts
    driver.path("/srv/home/beside.py").write_text(_BESIDE)

    output = driver.run(_SCRIPT, cluster.address, RESULTS)
    print(output)
    seen = found(output)
    assert seen["hosts"] == ["host1", "host2"]
    assert all(names == ["checkpoint_000001", "checkpoint_000005"] or len(names) == 3 for names in seen["kept"].values()), seen
    assert all(count == 5 for count in seen["logs"].values()), seen
    there = sorted(path.relative_to(other.path(RESULTS)).as_posix() for path in other.path(RESULTS).rglob("*"))
    print(there)
