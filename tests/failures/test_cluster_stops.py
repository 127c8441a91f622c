"""Trials on a cluster that are stopped in order, moved and continued; what every host keeps (F28, F33, F36, D17)."""

from __future__ import annotations

import os
import shutil
import signal

import pytest
from checkpoint_faults import fill
from clusters import DRAIN, Run, check_kept, check_whole, found, number_there, started, until

from tests.servers.cluster import PATIENCE_S, RESULTS, Cluster
from trainables.user_frames import last_said

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]
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

    def some_wait() -> bool:
        saved = [len(run.saved(cluster.hosts[0], x)) for x in range(1, 7)]
        return min(saved) >= 1 and sum(count >= 2 for count in saved) >= 4

    until("all have begun, and some wait", some_wait, of=script)
    os.kill(script.pid, signal.SIGINT)
    assert script.wait(2 * PATIENCE_S) == -signal.SIGINT and "to continue" in script.output
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
    assert "host2" in last_said(script.output)
    assert "cannot be written" in script.output
    assert run.starts(1) == []


def test_f30_a_full_disk_of_the_driver_ends_remote_trials_as_it_ends_its_own(cluster: Cluster) -> None:
    driver, other = cluster.hosts
    run, script = started(cluster, steps=8, size=3_000_000)
    (remote,) = [x for x in BOTH if run.starts(x)[0][1] == "host2"]
    ballast = fill(driver.path("/srv"), leave=2_000_000)
    run.go()
    output = script.ends(2 * PATIENCE_S)
    seen = found(output)
    assert {trial["status"] for trial in seen.values()} == {"ERROR"}, output
    assert all(trial["kept"] == ["checkpoint_000003"] for trial in seen.values())
    assert f"3 checkpoints in a row were not copied from host2 ({other.address})" in output
    assert "No space left on device" in output and "through the engine from here on" not in output
    assert "checkpoint_000003" in run.saved(other, remote)
    assert run.processes(driver) == run.processes(other) == []

    ballast.unlink()
    check_whole(run.start(resume="AUTO+ERRORED").ends(3 * PATIENCE_S), steps=8)
    assert all(len(run.starts(x)) == 2 and run.starts(x)[1][0] >= 3 for x in BOTH)


def test_what_overwrite_replaces_goes_on_every_node_once_a_trial_of_the_new_one_has_started(cluster: Cluster) -> None:
    _, other = cluster.hosts
    run, script = started(cluster)
    run.go()
    old = {trial["dirname"] for trial in check_whole(script.ends(2 * PATIENCE_S)).values()}
    on_other = [path for path in run.root(other).glob("*/checkpoint_*") if path.parent.name in old]
    mine = run.root(other) / "mine"
    shutil.copytree(on_other[0], mine / on_other[0].name)  # of a trial of the old one, where it never had one

    refused = run.start(resume=False, overwrite=True, resources_per_trial={"cpu": 99})
    assert refused.wait(2 * PATIENCE_S) == 1
    assert all(path.is_dir() for path in on_other), refused.output

    new = check_whole(run.start(resume=False, overwrite=True).ends(3 * PATIENCE_S))
    assert not any(path.exists() for path in on_other)
    kept = {path.parent.name for path in run.root(other).glob("*/checkpoint_*")}
    assert kept == {"mine"} | {trial["dirname"] for trial in new.values() if "host2" in trial["hosts"]}


@pytest.mark.soak  # it waits for a minute
def test_t04_a_driver_on_another_node_waits_for_a_sign_of_a_dead_one_and_then_continues(cluster: Cluster) -> None:
    driver, other = cluster.hosts
    run = Run(cluster, str(cluster.shared / "results"), x=list(BOTH), resources_per_trial={"cpu": 2})
    first = run.start()
    until("both wait", lambda: all(run.saved(driver, x) == ["checkpoint_000003"] for x in BOTH), of=first)
    first.close()
    second = run.start(other)
    waits = "which cannot be seen from here: waiting up to 60 s for a sign of life (takeover=True does not wait)"
    until("it says that it waits", lambda: waits in second.output, of=second)
    assert all(len(run.starts(x)) == 1 for x in BOTH)
    until("both run again", lambda: all(len(run.starts(x)) == 2 for x in BOTH), of=second, within_s=4 * PATIENCE_S)
    run.go()
    output = second.ends(3 * PATIENCE_S)
    assert output.count(waits) == 1
    check_whole(output)
    assert [start[0] for x in BOTH for start in run.starts(x)] == [0, 3, 0, 3]
    assert run.processes(driver) == run.processes(other) == []
