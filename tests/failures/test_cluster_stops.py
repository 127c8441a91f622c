"""Trials on a cluster that are stopped in order, moved and continued; what every host keeps (F28, F33, F36, D17)."""

from __future__ import annotations

import os
import signal

import pytest
from clusters import DRAIN, Run, check_kept, check_whole, number_there, started, until

from tests.servers.cluster import PATIENCE_S, RESULTS, Cluster

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]
BOTH = (1, 2)


def test_f36_who_has_to_leave_saves_first_and_no_failure_is_counted(cluster: Cluster) -> None:
    driver, other = cluster.hosts
    run, script = started(cluster, steps=8)
    (x,) = [x for x in BOTH if run.starts(x)[0][1] == "host2"]

    (trial,) = [pid for pid in run.processes(other) if number_there(pid) == run.starts(x)[0][2]]
    os.kill(trial, signal.SIGTERM)
    until("the preempted trial runs again", lambda: len(run.starts(x)) == 2, of=script)

    third = cluster.add_host()
    driver.run(DRAIN, cluster.address, other.address)
    other.harmed = True  # it will be gone
    until("it has left the drained node", lambda: len(run.starts(x)) == 3, of=script)
    assert run.starts(x)[2][:2] == (5, third.hostname)

    os.kill(script.pid, signal.SIGTERM)
    assert script.wait(2 * PATIENCE_S) == 143, script.output
    assert "host2" not in [start[1] for start in run.starts(x)[2:]]
    assert {each: int(run.saved(driver, each)[-1][11:17]) for each in BOTH} == {x: 6, 3 - x: 4}
    assert run.processes(driver) == run.processes(third) == []

    run.go()
    check_whole(run.start().ends(3 * PATIENCE_S), steps=8)
    assert [start[0] for start in run.starts(x)] == [0, 4, 5, 6]


@pytest.mark.parametrize("place", ["own disks", "a shared directory"])
def test_f28_f33_d17_what_moves_between_nodes_leaves_on_each_what_the_settings_keep(
    cluster: Cluster, place: str
) -> None:
    results = RESULTS if place == "own disks" else str(cluster.shared / "results")
    run = Run(cluster, results, population=True, x=list(range(1, 7)), free=4, steps=8, keep_checkpoints_num=2)
    script = run.start()
    until("some wait", lambda: sum(len(run.saved(cluster.hosts[0], x)) >= 2 for x in range(1, 7)) >= 4, of=script)
    os.kill(script.pid, signal.SIGINT)
    assert "to continue" in script.ends(2 * PATIENCE_S)
    check_kept(run)
    run.go()
    output = run.start().ends(4 * PATIENCE_S)
    assert ("every one sees" in output) == (place != "own disks")
    check_whole(output, steps=8)
    assert {start[1] for x in range(1, 7) for start in run.starts(x)} == {"host1", "host2"}
    check_kept(run)


def test_a_node_that_cannot_write_there_is_named_before_anything_runs(cluster: Cluster) -> None:
    driver, other = cluster.hosts
    driver.run(["mkdir", "-p", "/srv/sealed"])
    other.run(["sh", "-c", "mkdir -p /srv/sealed && mount -t tmpfs -o ro none /srv/sealed"])
    run = Run(cluster, "/srv/sealed")
    script = run.start()
    assert script.wait(2 * PATIENCE_S) == 1
    assert "host2" in script.output.splitlines()[-1]
    assert "cannot be written" in script.output
    assert run.starts(1) == []
