"""RayExecutor on two real hosts: where trials run, where their checkpoints come to lie, what dies with what."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.servers.cluster import RESULTS, Cluster
from tuner.error import SettingError
from tuner.executors import RayExecutor

_SCRIPT = (Path(__file__).parents[3] / "scripts" / "on_every_node.py").read_text()
_BESIDE = "def double(x):\n    return 2 * x\n"


def found(output: str) -> dict[str, Any]:
    line = next((line for line in output.splitlines() if line.startswith("FOUND ")), None)
    assert line is not None, output
    seen: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
    return seen


@pytest.mark.root
@pytest.mark.timeout(400)
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
