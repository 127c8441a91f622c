"""What is left of trials on every node when one of them, their agent or their driver ends (T05, R4, R10)."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from clusters import STEPS, Run, check_kept, check_whole, found, number_there, started, until

from tests.servers.cluster import PATIENCE_S, Cluster, RayHost, ray_cluster

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]
BOTH = (1, 2)


def agent_on(host: RayHost) -> int:
    (pid,) = [pid for pid in host.processes() if b"ray::Agent" in _command(pid)]
    return pid


def gone(run: Run, host: RayHost, old: list[int]) -> None:
    assert len(old) > 3  # the fork server, a keeper, the trial and its child at least
    until("nothing is left", lambda: not set(old) & set(host.processes()))


def test_t05_nothing_of_a_remote_trial_survives_it_or_its_agent(cluster: Cluster) -> None:
    _, other = cluster.hosts
    run, script = started(cluster, max_failures=1)
    (x,) = [x for x in BOTH if run.starts(x)[0][1] == "host2"]

    children = [pid for pid in run.processes(other) if _is_child(pid)]
    assert len(children) == 1
    (trial,) = [pid for pid in run.processes(other) if number_there(pid) == run.starts(x)[0][2]]
    os.kill(trial, signal.SIGKILL)
    until("the killed trial runs again", lambda: len(run.starts(x)) == 2, of=script)
    assert trial not in other.processes()
    assert not set(children) & set(other.processes())

    old = run.processes(other)
    os.kill(agent_on(other), signal.SIGKILL)
    until("what its agent had runs again", lambda: len(run.starts(x)) == 3, of=script)
    gone(run, other, old)

    run.go()
    output = script.ends(2 * PATIENCE_S)
    assert run.processes(other) == []
    seen = check_whole(output, failures={x: 1})
    assert [start[:2] for start in run.starts(x)] == [(0, "host2"), (3, "host2"), (3, "host2")]
    assert seen[str(x)]["kept"] == run.saved(other, x) == ["checkpoint_000006-1.3"]


def test_r10_a_driver_is_frozen_then_killed_and_the_next_one_continues(cluster: Cluster) -> None:
    driver, other = cluster.hosts
    run, script = started(cluster)
    old = {host.hostname: run.processes(host) for host in cluster.hosts}
    os.kill(script.pid, signal.SIGSTOP)
    for host in cluster.hosts:
        gone(run, host, old[host.hostname])
    os.kill(script.pid, signal.SIGCONT)
    until("both run again", lambda: all(len(run.starts(each)) == 2 for each in BOTH), of=script)
    (x,) = [x for x in BOTH if run.starts(x)[1][1] == "host2"]  # Ray may have placed them the other way round

    # It is killed while what a trial saved is on the other node only, two of which it waits for: sshd does not answer.
    old = {host.hostname: run.processes(host) for host in cluster.hosts}
    sshd = [pid for pid in other.processes() if _name(pid) == "sshd"]
    for pid in sshd:
        os.kill(pid, signal.SIGSTOP)
    run.go(x)
    until("the other node has more", lambda: run.saved(other, x)[-1:] == ["checkpoint_000005-1.2"], of=script)
    script.close()
    for pid in sshd:
        os.kill(pid, signal.SIGCONT)
    second = run.start()  # at once: agents of the first one may still be there
    for host in cluster.hosts:
        gone(run, host, old[host.hostname])
    run.go()
    check_whole(second.ends(3 * PATIENCE_S))
    assert [start[0] for start in run.starts(x)] == [0, 3, STEPS - 1]
    for each in BOTH:
        (kept,) = run.saved(driver, each)
        assert kept.startswith(f"checkpoint_{STEPS:06}")
        assert run.saved(other, each) in ([], [kept])
    assert run.processes(driver) == run.processes(other) == []


def test_t04_a_driver_on_another_node_waits_for_the_owner_and_takes_over_a_stale_one(cluster: Cluster) -> None:
    driver, other = cluster.hosts
    run = Run(cluster, str(cluster.shared / "results"), x=list(BOTH), resources_per_trial={"cpu": 2})
    first = run.start()
    until("both wait", lambda: all(len(run.starts(x)) == 1 and run.saved(driver, x) for x in BOTH), of=first)
    refused = run.start(other)  # until a heartbeat comes: when the first one wakes soon, its next one is not due
    assert refused.wait(2 * PATIENCE_S) == 1
    assert "is owned by another driver" in refused.output

    old = {host.hostname: run.processes(host) for host in cluster.hosts}
    os.kill(first.pid, signal.SIGSTOP)
    second = run.start(other, takeover=True)
    for host in cluster.hosts:
        gone(run, host, old[host.hostname])
    until("both run again", lambda: all(len(run.starts(x)) == 2 for x in BOTH), of=second)
    os.kill(first.pid, signal.SIGCONT)
    assert first.wait(2 * PATIENCE_S) == 1
    assert "was taken over by generation 2" in first.output
    run.go()
    check_whole(second.ends(3 * PATIENCE_S))
    assert [len(run.starts(x)) for x in BOTH] == [2, 2]
    assert [len(run.saved(driver, x)) for x in BOTH] == [1, 1]


def test_f38_a_node_that_joins_gets_nothing_from_one_that_is_dying(tmp_path: Path) -> None:
    slow = {"RAY_health_check_failure_threshold": "10000", "RAY_object_manager_pull_timeout_ms": "3600000"}
    with ray_cluster(tmp_path, ssh=False, env=slow) as cluster:
        run = Run(cluster, x=[1, 2, 3], resources_per_trial={"cpu": 2})
        script = run.start()
        until("no more have room", lambda: all(map(run.starts, BOTH)), of=script)
        cluster.hosts[1].freeze()  # it has what every agent needs, and Ray takes it for alive
        third = cluster.add_host()
        until("there is room", lambda: run.starts(3), of=script)
        assert run.starts(3)[0][1] == third.hostname


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_r10_whatever_dies_and_whenever_no_result_is_lost_or_repeated(cluster: Cluster, seed: int) -> None:
    dice = random.Random(seed)
    run = Run(cluster, x=list(range(1, 7)), steps=80, free=80, pause=0.1, max_failures=-1)
    script = run.start()
    for _ in range(25):
        time.sleep(dice.uniform(0, 3))  # whenever
        if script.poll() is not None:
            break
        host = dice.choice(cluster.hosts)
        victim = dice.choice(["trial", "agent", "copy", "driver"])
        if victim == "driver":
            script.close()
            script = run.start()
        elif victim == "copy":  # the copies that are on their way
            victims = [pid for pid in host.processes() if _name(pid) == "rsync"]
        else:
            agents = [pid for pid in host.processes() if b"ray::Agent" in _command(pid)]
            victims = agents if victim == "agent" else run.processes(host)
        if victim != "driver" and victims:
            with suppress(ProcessLookupError):
                os.kill(dice.choice(victims), signal.SIGKILL)
    output = script.ends(5 * PATIENCE_S)
    for trial in found(output).values():
        assert (trial["status"], trial["i"]) == ("TERMINATED", list(range(1, 81))), output
    check_kept(run)
    assert all(run.processes(host) == [] for host in cluster.hosts)


def _is_child(pid: int) -> bool:
    return b"trap" in _command(pid)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""  # it has ended


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""  # it has ended
