"""Nodes that die, freeze, are cut off and come back while trials run there (F38, F48)."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import Run, check_whole, found, started, until

from tests.servers.cluster import PATIENCE_S, Cluster, Driver, RayHost, ray_cluster

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]
FOUR = (1, 2, 3, 4)


@pytest.fixture
def without_ssh(tmp_path: Path) -> Iterator[Cluster]:
    with ray_cluster(tmp_path, ssh=False) as cluster:
        yield cluster


def cluster_for(way: str, request: pytest.FixtureRequest) -> Cluster:
    """Two hosts between which checkpoints go that way."""
    found: Cluster = request.getfixturevalue("without_ssh" if way == "through the engine" else "cluster")
    return found


def at_the_gate(run: Run, script: Driver, driver: RayHost) -> None:
    """Every trial has saved its third step, and that has come to the driver."""
    until("every trial is at its gate", lambda: all(_is_there(run, driver, x) for x in FOUR), of=script)


def _is_there(run: Run, driver: RayHost, x: int) -> bool:
    names = run.saved(driver, x)
    return len(names) == 1 and names[0].startswith("checkpoint_000003")


@pytest.mark.parametrize("way", ["by rsync over ssh", pytest.param("through the engine", marks=pytest.mark.soak)])
def test_f38_a_node_dies_and_its_trials_go_on_on_one_that_joins(way: str, request: pytest.FixtureRequest) -> None:
    cluster = cluster_for(way, request)
    driver, other = cluster.hosts
    run = Run(cluster)
    script = run.start()
    at_the_gate(run, script, driver)
    there = [x for x in FOUR if run.starts(x)[0][1] == "host2"]
    assert len(there) == 2
    other.kill()
    third = cluster.add_host()
    until("what was lost runs again", lambda: all(len(run.starts(x)) == 2 for x in there), of=script)
    assert [run.starts(x)[1][:2] for x in there] == [(3, third.hostname)] * 2
    for pid in third.processes():  # while the run goes on, ssh ceases to be a way
        if Path(f"/proc/{pid}/comm").read_text() == "sshd\n":
            os.kill(pid, signal.SIGKILL)
    run.go()
    output = script.ends(2 * PATIENCE_S)
    assert f"checkpoints of host2 (10.77.0.3) are copied here {way}" in output
    assert ("through the engine from here on" in output) == (way == "by rsync over ssh")
    for x, trial in check_whole(output).items():
        moved = int(x) in there
        assert len(run.starts(int(x))) == 1 + moved
        assert trial["kept"] == ["checkpoint_000006-1.2" if moved else "checkpoint_000006"]
        assert run.saved(third, int(x)) == (trial["kept"] if moved else [])
    assert run.processes(driver) == run.processes(third) == []


@pytest.mark.parametrize(
    ("how", "way"),
    [("frozen", "through the engine"), pytest.param("cut off", "by rsync over ssh", marks=pytest.mark.soak)],
)
def test_f48_a_node_that_comes_back_finds_its_trials_gone_elsewhere(
    how: str, way: str, request: pytest.FixtureRequest
) -> None:
    cluster = cluster_for(way, request)
    driver, other = cluster.hosts
    run = Run(cluster)
    script = run.start()
    at_the_gate(run, script, driver)
    there = [x for x in FOUR if run.starts(x)[0][1] == "host2"]
    here = [x for x in FOUR if x not in there]
    old = run.processes(other)
    assert len(old) >= 2 * len(there)
    other.freeze() if how == "frozen" else other.cut()
    cluster.wait_for(other, alive=False)
    for x in here:
        run.go(x)  # room for the others
    until("its trials run here", lambda: all(len(run.starts(x)) == 2 for x in there), of=script)
    other.thaw() if how == "frozen" else other.mend()
    until("its old processes are gone", lambda: not set(old) & set(other.processes()))
    assert all(len(run.starts(x)) == 2 for x in there)
    script.close()
    # It joins again, with a disk from before: the next driver is not misled by that, and puts it in order.
    cluster.start_ray(other, 2, None).ends(2 * PATIENCE_S)
    cluster.wait_for(other)
    run.go()
    output = run.start().ends(3 * PATIENCE_S)
    assert way in output
    for x, trial in check_whole(output).items():
        moved = int(x) in there
        assert [start[0] for start in run.starts(int(x))] == ([0, 3, 3] if moved else [0])
        assert trial["kept"] == ["checkpoint_000006-2.3" if moved else "checkpoint_000006"]
        assert run.saved(other, int(x)) in ([], trial["kept"])


def test_f38_a_driver_is_lost_with_its_disk_and_a_node_has_more_than_the_replica(cluster: Cluster) -> None:
    """What the replica's journal lacks is a row that says so; the node's newest checkpoint is used all the same."""
    driver, other = cluster.hosts
    copies = cluster.shared / "copies"
    run, script = started(cluster, upload_dir=str(copies), steps=10)
    (x,) = [x for x in (1, 2) if run.starts(x)[0][1] == "host2"]
    until("it is copied", lambda: list(copies.glob(f"*/*_{x - 1:05d}/checkpoint_000003/.manifest.json")), of=script)
    (uploader,) = [pid for pid in driver.processes() if b"trainables.transfer.agent" in command(pid)]
    os.kill(uploader, signal.SIGSTOP)  # a store that does not answer
    run.go(x)
    last = "checkpoint_000010"  # and one is kept, beside what is being copied
    until("it has ended", lambda: run.saved(other, x)[-1:] == [last] and len(run.saved(other, x)) < 4, of=script)
    script.close()
    os.kill(uploader, signal.SIGKILL)
    there = run.saved(other, x)
    shutil.rmtree(run.root(driver))
    run.go()
    output = run.start(takeover=True).ends(3 * PATIENCE_S)

    seen = found(output)
    mine, its = seen.pop(str(x)), seen.popitem()[1]
    assert (mine["status"], its["status"]) == ("TERMINATED", "TERMINATED")
    gaps = [n for n in range(4, 11) if f"checkpoint_{n:06}" not in there]
    assert mine["i"] == [None if n in gaps else n for n in range(1, 11)] and its["i"] == list(range(1, 11))
    assert [start[0] for start in run.starts(x)] == [0, 10]
    for place in (run.root(driver), copies / run.name):
        rows = [json.loads(line) for line in (place / mine["dirname"] / "result.json").read_text().splitlines()]
        assert [row for row in rows if "missing" in row] == [{"training_iteration": n, "missing": True} for n in gaps]
    assert (
        output.count(f"{mine['dirname']}: {len(gaps)} results before its iteration 10 ({gaps[0]} to {gaps[-1]})") == 1
    )


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""  # it has ended
