"""Trials in jobs of a real Slurm: jobs, nodes and the driver end at any time, and nothing is lost."""

from __future__ import annotations

import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.failures.slurm_runs import SlurmScript, until
from tests.servers.slurm import Slurm, slurm

pytestmark = [pytest.mark.root]


@pytest.fixture(scope="module")
def started() -> Iterator[Slurm]:
    with slurm() as cluster:
        yield cluster


@pytest.fixture
def cluster(started: Slurm) -> Iterator[Slurm]:
    yield started
    started.run("scancel", "--user=root")
    started.cancel_all()


def test_trials_run_in_jobs_that_are_gone_at_the_end(cluster: Slurm, tmp_path: Path) -> None:
    script = SlurmScript(cluster, tmp_path, trials=6, steps=2)
    found = script.ends(script.start())
    jobs = {job for trial in found.values() for job in trial["jobs"]}
    assert 1 <= len(jobs) <= 2
    until("no job is left", lambda: not script.left())
    files = {path.name: path for path in (script.root / ".slurm").iterdir()}
    key = files["driver.json"]
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700


def test_a_job_that_is_cancelled_takes_nothing_with_it(cluster: Slurm, tmp_path: Path) -> None:
    script = SlurmScript(cluster, tmp_path)
    process = script.start()
    script.wait_for_gate(process)
    job = script.starts(0)[0][1]
    cluster.run("scancel", job)
    until("it goes on elsewhere", lambda: len(script.starts(0)) > 1, process, script.output())
    script.go()
    found = script.ends(process)
    assert script.starts(0)[1][1] != job
    assert set(found[0]["jobs"][:2]) == {job}


def test_a_job_that_is_requeued_comes_again(cluster: Slurm, tmp_path: Path) -> None:
    script = SlurmScript(cluster, tmp_path, trials=1, slurm={"jobs": 1, "sbatch": {"requeue": True}})
    process = script.start()
    script.wait_for_gate(process)
    job = script.starts(0)[0][1]
    cluster.run("scontrol", "requeue", job)
    until("it goes on there", lambda: len(script.starts(0)) > 1, process, script.output())
    script.go()
    script.ends(process)
    assert script.starts(0)[1][1] == job


def test_a_node_that_dies_takes_nothing_with_it(cluster: Slurm, tmp_path: Path) -> None:
    script = SlurmScript(cluster, tmp_path)
    process = script.start()
    script.wait_for_gate(process)
    job = script.starts(1)[0][1]
    node = cluster.run("squeue", "-h", "-o", "%N", "-j", job).strip()
    dead = next(each for each in cluster.nodes if each.name == node)
    dead.down()
    try:
        until("it goes on elsewhere", lambda: len(script.starts(1)) > 1, process, script.output())
        assert script.starts(1)[1][0] == 2
        script.go()
        script.ends(process)
    finally:
        dead.up()


def test_of_a_driver_that_is_killed_no_agent_and_no_job_is_left(cluster: Slurm, tmp_path: Path) -> None:
    script = SlurmScript(cluster, tmp_path, trials=12, slurm={"jobs": 6})
    process = script.start()
    until("jobs wait", lambda: "PENDING" in cluster.run("squeue", "-h", "-o", "%T"), process, script.output())
    until("some run", lambda: any(script.starts(n) for n in range(12)), process, script.output())
    script.kill(process)
    until("nothing is left", lambda: not script.left(), within_s=60)
    script.go()
    script.ends(script.start())


def test_at_its_known_end_a_job_lets_its_trials_go(cluster: Slurm, tmp_path: Path) -> None:
    end = tmp_path / "end"  # of the first job only
    setup = f"[ -e {end} ] || export SLURM_JOB_END_TIME=$(( $(date +%s) + 14 )); touch {end}"
    script = SlurmScript(cluster, tmp_path, trials=1, slurm={"jobs": 1, "setup": setup})
    process = script.start()
    until("it goes on elsewhere", lambda: len(script.starts(0)) > 1, process, script.output())
    script.go()
    script.ends(process)
    (first, job, _), (again, other, _) = script.starts(0)
    assert (first, again) == (0, 3)  # it has saved once more
    assert job != other


def test_agents_wait_for_the_next_driver_where_the_requeue_was_planned(cluster: Slurm, tmp_path: Path) -> None:
    script = SlurmScript(cluster, tmp_path)
    process = script.start()
    script.wait_for_gate(process)
    jobs = {script.starts(n)[0][1] for n in range(2)}
    process.send_signal(signal.SIGUSR2)
    assert process.wait(60) == 143, script.output().read_text()
    assert set(cluster.run("squeue", "-h", "-r", "-o", "%i").split()) == jobs
    script.go()
    found = script.ends(script.start())
    assert {job for trial in found.values() for job in trial["jobs"]} == jobs
    until("no job is left", lambda: not script.left())


def test_trials_of_a_job_that_is_preempted_save_in_its_grace_time(tmp_path: Path) -> None:
    preempts = "PreemptType=preempt/partition_prio\nPreemptMode=CANCEL"
    with slurm(
        partitions={"low": "PriorityTier=1 GraceTime=20", "high": "PriorityTier=9"}, settings=preempts
    ) as cluster:
        script = SlurmScript(cluster, tmp_path, slurm={"partition": "low"})
        process = script.start()
        script.wait_for_gate(process)
        other = cluster.sbatch("#!/bin/sh\nexec sleep 600\n", "--partition=high", "--nodes=2", "--exclusive")
        cluster.wait_for(other, "RUNNING")
        cluster.run("scancel", str(other))
        until("both go on", lambda: all(len(script.starts(n)) > 1 for n in range(2)), process, script.output())
        script.go()
        script.ends(process)
        assert [script.starts(n)[1][0] for n in range(2)] == [3, 3]  # both have saved once more
