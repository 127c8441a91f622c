"""Commands by RayExecutor on two real hosts, one of which is lost: with a directory that both see, and without one."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.servers.cluster import PATIENCE_S, RESULTS, Cluster
from tests.trainables.command.programs import loss, written

_SCRIPT = """
import sys
import tuner as tune
from tuner.executors import RayExecutor

address, results, program = sys.argv[1:]
train = tune.Command(
    [sys.executable, program, "--lr", "{lr}", "--out", "{trial_dir}", "--pause", "0.4", "[[--resume", "{checkpoint}]]"],
    metrics={"jsonl": "{trial_dir}/log.jsonl", "step": "epoch"},
    checkpoints={"glob": "{trial_dir}/epoch-(?P<step>[0-9]+)", "complete": "renamed"},
)
tune.run(
    train,
    config={"lr": tune.grid_search([0.1, 0.2, 0.3, 0.4])},
    name="e",
    storage_path=results,
    executor=RayExecutor(address=address),
    keep_checkpoints_num=1,
    verbose=3,
)
"""


@pytest.mark.root
@pytest.mark.timeout(400)
@pytest.mark.parametrize("shared", [False, True])
def test_a_command_goes_on_on_another_host(cluster: Cluster, shared: bool) -> None:
    driver, other = cluster.hosts
    program = written(cluster.shared)
    place = str(cluster.shared / "results") if shared else RESULTS
    results = Path(place) if shared else driver.path(RESULTS)
    script = driver.popen(_SCRIPT, cluster.address, place, program)
    until = time.monotonic() + 2 * PATIENCE_S
    while not any(_hosts(trial) == ["host2"] * 2 for trial in results.glob("e/*/result.json")):
        assert script.poll() is None and time.monotonic() < until, script.output
        time.sleep(0.1)
    other.kill()
    output = script.ends(3 * PATIENCE_S)

    found = sorted(results.glob("e/*/result.json"))
    assert len(found) == 4 and "4 done" in output
    assert {host for trial in found for host in _hosts(trial)} == {"host1", "host2"}
    for trial in found:
        rows = [json.loads(line) for line in trial.read_text().splitlines()]
        assert [row["epoch"] for row in rows] == [1, 2, 3, 4, 5, 6]
        lr = json.loads((trial.parent / "params.json").read_text())["lr"]
        assert rows[-1]["loss"] == pytest.approx(loss(lr, 6))
        (kept,) = trial.parent.glob("checkpoint_*/state.json")
        assert json.loads(kept.read_text())["epoch"] == 6


def _hosts(trial: Path) -> list[str]:
    return [json.loads(line)["hostname"] for line in trial.read_text().splitlines()]
