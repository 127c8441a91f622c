"""Callers on other hosts than the driver's: they join, and what is killed goes on, as on one host."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.servers.cluster import Cluster, RayHost
from tests.servers.hosts import network
from tests.servers.slurm import slurm
from tests.tuner.asking.callers import SCRIPT, Caller, driver, history, judged, until
from tests.tuner.asking.test_campaign_of_callers import struck
from tuner.asking.driver_address import owner_of
from tuner.experiment.generations import read_records
from tuner.experiment.paths import ExperimentPaths

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]
AT = {"TUNE_SESSION_ADDRESS": "eth0"}


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Cluster]:
    """Two hosts that share a directory, without Ray."""
    with network(tmp_path) as made:
        (tmp_path / "shared").mkdir()
        cluster = Cluster(tmp_path, made, "256m", False)
        for _ in range(2):
            cluster.boot()
        yield cluster
        for host in cluster.hosts:
            host.kill()


def opened(cluster: Cluster, host: RayHost, env: dict[str, str] | None = None, **settings: Any) -> Caller:
    caller = Caller(cluster.shared, host=host, env=AT if env is None else env, **{"num_samples": 2} | settings)
    assert caller.end() == "open"
    return caller


def over(cluster: Cluster) -> bool:
    """Whether the driver has ended in order."""
    return owner_of(ExperimentPaths(cluster.shared / "s")) is None


def kill_driver(cluster: Cluster, host: RayHost) -> None:
    host.run(["kill", "-9", str(driver(cluster.shared))])


def published(cluster: Cluster) -> list[int]:
    return [fact["ref"]["iteration"] for fact in history(cluster.shared).kind("published")]


def _drivers(host: RayHost) -> list[int]:
    found = []
    for pid in host.processes():
        with suppress(OSError):  # it has ended
            if b"tuner.asking.driver_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def _running(storage: Path) -> set[str]:
    found = history(storage)
    return {fact["trial"] for fact in found.kind("attempt")} - {fact["trial"] for fact in found.kind("ended")}


def finish(caller: Caller, iterations: int, since: int = 0) -> None:
    for iteration in range(since + 1, iterations + 1):
        assert caller.do("report", state=iteration, total=sum(range(1, iteration + 1))) == "continue"
    assert caller.do("finish") is None


def test_who_joins_from_another_host_trains_as_on_the_drivers(hosts: Cluster) -> None:
    one = opened(hosts, hosts.hosts[0], num_samples=3, max_failures=1)
    two = opened(hosts, hosts.hosts[1], num_samples=3)
    assert owner_of(ExperimentPaths(hosts.shared / "s")).owner.host == "host1"  # type: ignore[union-attr]
    assert (hosts.shared / "s" / "generations" / "session.json").stat().st_mode & 0o777 == 0o600
    first, second = one.do("ask"), two.do("ask")
    assert first["trial"] != second["trial"]
    assert two.do("report", state=1, total=1) == "continue"
    assert two.do("fail", text="on purpose") is None
    again = two.do("ask")
    assert (again["trial"], again["iteration"], again["from"]) == (second["trial"], 1, 1)
    finish(two, 3, since=1)
    finish(one, 3)
    assert one.do("ask")["iteration"] == 0
    assert two.do("ask") is None
    two.begin("ask", wait=True)
    finish(one, 3)
    assert two.end() is None
    for caller in (one, two):
        caller.close()
    until(lambda: over(hosts))
    judged(hosts.shared, trials=3, iterations=3)


def test_a_dead_caller_elsewhere_leaves_its_trial_and_a_dead_driver_is_followed_by_another(hosts: Cluster) -> None:
    here, there = hosts.hosts
    one, two = opened(hosts, here), opened(hosts, there)
    first, second = one.do("ask"), two.do("ask")
    assert two.do("report", state=1, total=1) == "continue"
    until(lambda: published(hosts) == [1])
    assert one.do("report", total=1) == "continue"
    kill_driver(hosts, here)
    two.begin("report", state=2, total=3)  # waits until a caller of the driver's host has started the next life
    assert one.do("report", state=2, total=3) == "continue"
    assert two.end() == "continue"
    until(lambda: not _drivers(there))  # the one that waited there to become the owner has left
    until(lambda: sorted(published(hosts)) == [1, 2, 2])
    two.kill()
    finish(one, 3, since=2)
    got = one.do("ask", wait=True)
    assert (got["trial"], got["iteration"], got["from"]) == (second["trial"], 2, 2)
    assert got["trial"] != first["trial"]
    finish(one, 3, since=2)
    two.close()
    one.close()
    until(lambda: over(hosts))
    judged(hosts.shared, trials=2, iterations=3)


@pytest.mark.parametrize("victim", ["the caller's", pytest.param("the driver's", marks=pytest.mark.soak)])
def test_a_host_that_is_gone_without_a_word(hosts: Cluster, victim: str) -> None:
    here, there = hosts.hosts
    one, two = opened(hosts, here), opened(hosts, there)
    lost, stays = (one, two) if victim == "the driver's" else (two, one)
    assert stays.do("ask")["iteration"] == 0
    trial = lost.do("ask")["trial"]
    assert lost.do("report", state=1, total=1) == "continue"
    until(lambda: published(hosts) == [1])
    gone = here if victim == "the driver's" else there
    gone.cut()
    gone.kill()
    finish(stays, 3)
    got = stays.do("ask", wait=True)
    assert (got["trial"], got["iteration"], got["from"]) == (trial, 1, 1)
    finish(stays, 3, since=1)
    for caller in (lost, stays):
        caller.close()
    until(lambda: over(hosts))
    judged(hosts.shared, trials=2, iterations=3)


def test_where_other_hosts_are_not_let_in_the_error_names_the_drivers(hosts: Cluster) -> None:
    here, there = hosts.hosts
    one = opened(hosts, here, env={})
    said = there.popen(
        f"import tuner as tune; tune.open_session('s', storage_path={str(hosts.shared)!r}, num_samples=2, "
        "config={'x': tune.uniform(0, 1)})"
    )
    until(lambda: said.poll() is not None)
    assert "OwnedElsewhereError" in said.output and "lives on host1 (pid" in said.output
    assert "TUNE_SESSION_ADDRESS" in said.output
    one.close()


IN_TASKS = """
import os, socket, sys, time
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
import tuner as tune

storage = sys.argv[1]
ray.init(address="auto", log_to_driver=False)
there = next(node for node in ray.nodes() if node["NodeManagerHostname"] == "host2")

@ray.remote(scheduling_strategy=NodeAffinitySchedulingStrategy(there["NodeID"], soft=False), max_retries=1)
def task():
    trained = []
    with tune.open_session("s", config={"x": tune.uniform(0, 1)}, num_samples=2, storage_path=storage) as session:
        while (trial := session.ask(wait=True)) is not None:
            for step in range(trial.iteration + 1, 4):
                trial.report({"total": sum(range(1, step + 1))}, tune.Checkpoint.from_dict({"step": step}))
                if step == 2 and not os.path.exists(f"{storage}/killed"):
                    while not os.path.exists(f"{trial.directory}/checkpoint_000002"):
                        time.sleep(0.01)
                    open(f"{storage}/killed", "w").close()
                    os.kill(os.getpid(), 9)
            trained.append((trial.iteration, socket.gethostname()))
            trial.finish()
    return trained

with tune.open_session("s", config={"x": tune.uniform(0, 1)}, num_samples=2, storage_path=storage) as session:
    print(ray.get(task.remote()))
"""


def test_tasks_of_a_ray_cluster_join_the_session_of_a_script(cluster: Cluster) -> None:
    said = cluster.hosts[0].run(IN_TASKS, str(cluster.shared), within_s=120)
    assert "(2, 'host2')" in said and "(0, 'host2')" in said
    judged(cluster.shared, trials=2, iterations=3)


def test_jobs_of_slurm_share_a_session(tmp_path: Path) -> None:
    given = {
        "storage_path": str(tmp_path),
        "num_samples": 6,
        "work": {"iterations": 4, "step_s": 0.5, "threads": 1},
    }
    script = f"#!/bin/sh\nexport PYTHONPATH={SCRIPT.parents[3]}\nexec {sys.executable} {SCRIPT} '{json.dumps(given)}'\n"
    with slurm() as cluster:
        one = cluster.sbatch(script, "--nodelist=n1")
        until(lambda: (tmp_path / "s" / "generations" / "session.json").exists())
        two = cluster.sbatch(script, "--nodelist=n2", "--no-requeue")
        until(lambda: len(_running(tmp_path)) == 2)  # each caller has one: the first may have finished others meanwhile
        cluster.nodes[1].down()
        cluster.wait_for(one, "COMPLETED")
        assert cluster.state(two) != "COMPLETED"
    judged(tmp_path, trials=6, iterations=4)
    assert {record.owner.host for record in read_records(ExperimentPaths(tmp_path / "s"))} == {"n1"}


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(4))
def test_callers_of_two_hosts_and_drivers_are_killed_at_random(hosts: Cluster, seed: int) -> None:
    blows = struck(
        hosts.shared, trials=120, callers=4, seed=seed, iterations=8, every_s=5.0, step_s=0.3, stops=False,
        hosts=hosts.hosts, env=AT,
    )  # fmt: skip
    until(lambda: over(hosts))
    judged(hosts.shared, trials=120, iterations=8)
    print(blows, len(read_records(ExperimentPaths(hosts.shared / "s"))), "generations")
    assert min(blows.values()) > 3, blows
