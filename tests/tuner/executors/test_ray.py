"""RayExecutor on two real hosts: where trials run, where their checkpoints come to lie, what dies with what."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.servers.cluster import PATIENCE_S, RESULTS, Cluster
from tuner.error import SettingError
from tuner.executors import RayExecutor

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(400)]

_SCRIPT = """
import json, os, socket, sys, time
from pathlib import Path
import tuner as tune
from tuner.executors import RayExecutor
from beside import double


def train(config):
    held = tune.get_checkpoint()
    start = held.to_dict()["i"] if held else 0
    Path(config["shared"], socket.gethostname()).touch()
    while len(os.listdir(config["shared"])) < 2:  # both nodes are to have something to do
        time.sleep(0.05)
    for i in range(start + 1, 6):
        print("step", i, "on", socket.gethostname())
        tune.report({"loss": double(config["x"]) * i, "host": socket.gethostname()},
                    checkpoint=tune.Checkpoint.from_dict({"i": i}))


if __name__ == "__main__":
    given = dict(
        executor=RayExecutor(address=sys.argv[1]), storage_path=sys.argv[2], metric="loss", mode="min", verbose=2,
        keep_checkpoints_num=2, checkpoint_score_attr="min-loss",
    )
    space = {"x": tune.grid_search([1, 2, 3, 4]), "shared": sys.argv[3]}
    analysis = tune.run(train, name="exp", config=space, **given)
    again = tune.run(train, name="again", config=space, **given)  # by the very same executor
    print("AGAIN", [trial.last_result["training_iteration"] for trial in again.trials])
    hosts = {trial.dirname: trial.last_result["host"] for trial in analysis.trials}
    kept = {t.dirname: sorted(p for p in os.listdir(t.path) if p.startswith("checkpoint")) for t in analysis.trials}
    logs = {trial.dirname: open(trial.path + "/stdout").read().count("step") for trial in analysis.trials}
    best = analysis.best_checkpoint.to_dict()
    print("FOUND", json.dumps({"hosts": hosts, "kept": kept, "logs": logs, "best": best}))
"""
_BESIDE = "def double(x):\n    return 2 * x\n"


def found(output: str) -> dict[str, Any]:
    line = next((line for line in output.splitlines() if line.startswith("FOUND ")), None)
    assert line is not None, output
    seen: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
    return seen


def test_trials_run_on_every_node_and_their_checkpoints_and_output_come_to_the_driver(cluster: Cluster) -> None:
    driver, other = cluster.hosts
    driver.path("/srv/home/beside.py").write_text(_BESIDE)  # host2 does not have it
    before = {path for host in cluster.hosts for path in host.path("/tmp").iterdir()}

    output = driver.run(_SCRIPT, cluster.address, RESULTS, str(cluster.shared))
    seen = found(output)
    assert "2 nodes; checkpoints of host2 (10.77.0.3) are copied here by rsync over ssh" in output
    assert "AGAIN [5, 5, 5, 5]" in output
    assert set(seen["hosts"].values()) == {"host1", "host2"}
    assert set(seen["logs"].values()) == {5}
    assert seen["best"] == {"i": 1}
    best_and_latest = ["checkpoint_000001", "checkpoint_000002", "checkpoint_000005"]
    for dirname, host in seen["hosts"].items():
        assert seen["kept"][dirname] == best_and_latest
        there = other.path(f"{RESULTS}/exp/{dirname}")
        assert there.is_dir() == (host == "host2")
        if there.is_dir():  # nothing half done either
            names = sorted(name for name in os.listdir(there) if name.startswith(("checkpoint", ".")))
            assert names == best_and_latest
    assert sorted(path.name for path in other.path(RESULTS).iterdir()) == ["again", "exp"]  # no temporary files
    for host in cluster.hosts:
        environments = [Path(f"/proc/{pid}/environ").read_bytes() for pid in host.processes()]
        assert not any(b"TUNER_OWNER=" in environment for environment in environments)
        left = set(host.path("/tmp").iterdir()) - before
        assert not [path.name for path in left if path.name.startswith(("tuner-ssh-", "tuner-agent-"))]


@pytest.mark.parametrize("address", ["", "local", "10.0.0.1", "http://10.0.0.1:6379", "ray://10.0.0.1:10001", 6379])
def test_an_address_that_is_none_is_refused_at_once(address: Any) -> None:
    with pytest.raises(SettingError, match=r'accepted are None, "auto" and "<ip>:<port>"') as caught:
        RayExecutor(address)
    assert ("Ray's client" in str(caught.value)) == str(address).startswith("ray://")
    with pytest.raises(SettingError, match="it is RayExecutor"):
        RayExecutor(options={"address": "10.0.0.1:6379"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"runtime_env": "x"},
            "RayExecutor(runtime_env='x') is not accepted; accepted are None and a dict with Ray's keys",
        ),
        ({"runtime_env": {1: "x"}}, "RayExecutor(runtime_env={1: 'x'}) is not accepted"),
        (
            {"options": [1]},
            "RayExecutor(options=[1]) is not accepted; accepted are None and a dict of keyword arguments",
        ),
        ({"options": {3: 4}}, "RayExecutor(options={3: 4}) is not accepted"),
    ],
)
def test_what_is_no_dict_is_refused_at_once(given: Any, said: str) -> None:
    with pytest.raises(SettingError) as caught:
        RayExecutor(**given)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"runtime_env": {"pipp": []}}, "unknown key of RayExecutor(runtime_env=...) 'pipp'; did you mean 'pip'?"),
        (
            {"options": {"runtime_env": {"env_var": {}}}},
            "(options={'runtime_env': ...}) 'env_var'; did you mean 'env_vars'?",
        ),
        ({"runtime_env": {"env_vars": {"A": 1}}}, "the value 1 is of type"),
        (
            {"runtime_env": {"working_dir": "/srv"}},
            "RayExecutor(runtime_env={'working_dir': '/srv'}) is not accepted: ",
        ),
    ],
)
def test_a_runtime_env_that_ray_would_not_take_is_refused_before_anything_begins(
    given: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_RUNTIME_ENV_PLUGINS", raising=False)
    nowhere = RayExecutor("127.0.0.1:1", **given)  # no cluster is asked
    with pytest.raises(SettingError) as caught:
        tune.run(print, executor=nowhere, storage_path=tmp_path, verbose=0)
    assert said in str(caught.value) and not list(tmp_path.iterdir())


def test_keys_of_rays_plugins_are_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_RUNTIME_ENV_PLUGINS", '[{"class": "mine.Plugin"}]')
    with pytest.raises(SettingError, match="there is no Ray cluster"):
        RayExecutor("127.0.0.1:1", runtime_env={"mine": 1, "nsight": "default"}).total()


def test_an_option_that_ray_does_not_take_is_not_said_to_be_a_missing_cluster(cluster: Cluster) -> None:
    script = (
        "import sys, tuner as tune\n"
        "from tuner.executors import RayExecutor\n"
        "tune.run(print, executor=RayExecutor(sys.argv[1], options={'num_cpu': 3}))\n"
    )
    run = cluster.hosts[0].popen(script, cluster.address)
    assert run.wait(PATIENCE_S) == 1
    assert "Unknown keyword argument(s): num_cpu" in run.output.splitlines()[-1]
    assert "no Ray cluster" not in run.output.splitlines()[-1]
