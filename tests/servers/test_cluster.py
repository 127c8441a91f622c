"""The cluster that other tests stand on: its hosts are apart, its deaths are real, and it leaves nothing behind."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.cluster import PATIENCE_S, RESULTS, Cluster, pids_in
from tests.servers.hosts import ip, sweep

pytestmark = [pytest.mark.root, pytest.mark.timeout(400)]

_TASKS = """
import os, socket, subprocess, sys
from pathlib import Path
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

@ray.remote(num_cpus=1)
def leave_a_file(shared):
    name = socket.gethostname()
    Path("/srv/results", name).write_text(name)
    Path(shared, name).write_text(name)
    other = {"host1": "host2", "host2": "host1"}[name]
    return name, subprocess.run(["ssh", other, "hostname"], capture_output=True, text=True, check=True).stdout.strip()

ray.init(address=sys.argv[1])
there = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in ray.nodes() if node["Alive"]]
tasks = [leave_a_file.options(scheduling_strategy=node).remote(sys.argv[2]) for node in there]
print("SAID", sorted(ray.get(tasks)))
subprocess.run(["rsync", "-a", "host2:/srv/results/", "/srv/results/"], check=True)
"""

_WATCH = """
import sys, time
import ray

ray.init(address=sys.argv[1])
seen = {}
while not seen or any(seen[name] for name in sys.argv[2:]):
    now = {node["NodeManagerHostname"]: node["Alive"] for node in ray.nodes()}
    if now != seen:
        print("NODES", now, flush=True)
    seen = now
    time.sleep(0.1)
"""

_OWNER = """
import os, sys
from pathlib import Path
from tests.servers.cluster import ray_cluster

with ray_cluster(Path(sys.argv[1]), hosts=1, ssh=False) as cluster:
    print(cluster.hosts[0].init, flush=True)
    sys.stdin.read()
"""


def test_hosts_have_names_and_disks_of_their_own_and_reach_each_other(cluster: Cluster) -> None:
    head, second = cluster.hosts
    said = head.run(_TASKS, cluster.address, str(cluster.shared))
    assert "SAID [('host1', 'host2'), ('host2', 'host1')]" in said
    assert second.path(f"{RESULTS}/host2").read_text() == "host2"
    assert not second.path(f"{RESULTS}/host1").exists()
    assert {file.name for file in head.path(RESULTS).iterdir()} == {"host1", "host2"}  # the second came by rsync
    assert {file.name for file in cluster.shared.iterdir()} == {"host1", "host2"}
    assert not Path(RESULTS).exists()


def test_a_host_that_is_killed_and_one_that_is_frozen_are_dead_for_ray(cluster: Cluster) -> None:
    head, second = cluster.hosts
    third = cluster.add_host()
    watch = head.popen(_WATCH, cluster.address, "host2", third.hostname)
    processes = os.readlink(f"/proc/{second.init}/ns/pid")
    sleeper = second.popen(["sleep", "infinity"])
    assert sleeper.pid in pids_in(processes)
    second.kill()
    assert pids_in(processes) == []
    assert sleeper.returncode == -9
    third.freeze()
    cluster.wait_for(second, third, alive=False)
    assert watch.ends().rpartition("NODES ")[2].count("True") == 1
    third.thaw()


def test_a_cluster_whose_test_is_killed_leaves_no_process(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, tmp_path], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        init = int(owner.stdout.readline())
        processes = os.readlink(f"/proc/{init}/ns/pid")
        assert len(pids_in(processes)) > 5
        end = os.pidfd_open(init)
        owner.kill()
    assert select.select([end], [], [], PATIENCE_S)[0]
    os.close(end)
    assert pids_in(processes) == []
    sweep()
    assert f"tt{owner.pid}n" not in ip("netns", "list")
