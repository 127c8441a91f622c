"""Slurm's commands, of a real one: what they say is read, what they refuse names what is accepted."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.slurm import PATIENCE_S, Slurm, slurm
from tuner.error import SettingError, SlurmSilentError, TuneError
from tuner.executors.slurm import asking, commands
from tuner.executors.slurm.batch_options import BatchOptions
from tuner.executors.slurm.batch_script import script
from tuner.executors.slurm.partitions import partitions

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    with slurm(gpus=2, partitions={"long": "MaxTime=60 DefaultTime=5", "short": "MaxTime=1"}) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def here(cluster: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {**cluster.env, "SQUEUE_FORMAT": "%j", "SQUEUE_STATES": "CD", "SINFO_FORMAT": "%N"}.items():
        monkeypatch.setenv(name, value)
    yield
    monkeypatch.undo()
    cluster.cancel_all()


def job(*command: str, name: str = "t", output: str = "/dev/null", **options: Any) -> str:
    return script(BatchOptions(**options), name=name, output=Path(output), command=command or ("sleep", "600"))


def test_a_job_is_seen_from_the_queue_to_its_end(cluster: Slurm) -> None:
    (id,) = commands.submit(job("sh", "-c", "exit 7", name="seen"))
    wait_for(lambda: not commands.queue("seen"))
    assert commands.ended(id) == ("FAILED", 7)
    assert commands.ended("99999") is None
    assert commands.waited()[0].id == id
    assert commands.waited()[0].started


def test_jobs_of_an_array_are_named_as_the_queue_names_them(cluster: Slurm) -> None:
    ids = commands.submit(job(name="many"), count=3)
    assert len(set(ids)) == 3
    assert all(re.fullmatch(r"\d+_[012]", id) for id in ids)
    assert set(commands.queue("many")) == set(ids)
    assert not commands.queue("man")
    wait_for(lambda: commands.queue("many")[ids[0]].state == "RUNNING")
    now = time.time()
    end = commands.queue("many")[ids[0]].end_time
    assert end is not None
    assert now < end < now + 301  # DefaultTime=5
    commands.cancel(ids[:1])
    wait_for(lambda: set(commands.queue("many")) == set(ids[1:]))
    assert commands.ended(ids[0]) == ("CANCELLED", 128 + 15)
    commands.cancel([*ids, "99999"])
    commands.cancel_named("many")
    wait_for(lambda: not commands.queue("many"))


def test_partitions_have_limits_and_sizes() -> None:
    long, short = partitions()
    assert (long.name, long.default, long.longest_s, long.default_s) == ("long", True, 3600, 300)
    assert (short.name, short.default, short.longest_s, short.default_s) == ("short", False, 60, None)
    assert (long.nodes, long.nodes_up, long.cpus, long.gpus, long.memory_mb, long.up) == (2, 2, 2, 2, 4000, True)


def test_where_the_controller_is_this_machine_a_node_says_by_which_interface_it_is_reached(cluster: Slurm) -> None:
    assert commands.controller_address() == "127.0.0.1"
    cluster.run("scontrol", "update", "NodeName=n2", "NodeAddr=192.0.2.7")
    try:
        assert commands.controller_address() == "192.0.2.7"
    finally:
        cluster.run("scontrol", "update", "NodeName=n2", "NodeAddr=127.0.0.1")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"partition": "nope"},
            "partition='nope' is not accepted; there are long (up to 01:00:00), short (up to 00:01:00)",
        ),
        (
            {"partition": "short", "time": "02:00:00"},
            "time='02:00:00' is not accepted; partition short allows up to 00:01:00",
        ),
        ({"cpus_per_task": 64}, "cpus_per_task=64 is not accepted; nodes of partition long have 2 cpus"),
        (
            {"gpus_per_node": 9},
            "node configuration is not available; the largest node of partition long has 2 cpus, 2 gpus",
        ),
        ({"mem": "900G"}, "the largest node of partition long has 2 cpus, 2 gpus and 4000 MB"),
        ({"sbatch": {"constraint": "fast"}}, "Invalid feature specification"),
        ({"sbatch": {"bogus": "fast"}}, "unrecognized option '--bogus=fast'"),
    ],
)
def test_what_slurm_would_not_run_is_refused_before(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=re.escape(said)):
        commands.test(job(**options))


def test_what_sbatch_refuses_names_what_there_is() -> None:
    with pytest.raises(
        SettingError, match=r"Invalid partition name specified; partition='nope', and there are long, short"
    ):
        commands.submit(job(partition="nope"))


def test_a_job_that_will_never_start_is_known_by_its_reason() -> None:
    (id,) = commands.submit(job(name="never", partition="short", time="30"))
    wait_for(lambda: commands.queue("never")[id].reason == "PartitionTimeLimit")
    assert commands.queue("never")[id].never == "its partition does not allow that much time (time=)"


def test_a_job_that_would_run_is_taken_also_while_nodes_are_down(cluster: Slurm) -> None:
    commands.test(job(gpus_per_node=1))
    for node in cluster.nodes:
        node.down()
    try:
        commands.test(job(gpus_per_node=1))
        assert partitions()[0].nodes_up == 0
    finally:
        for node in cluster.nodes:
            node.up()


def test_a_job_can_be_requeued(cluster: Slurm) -> None:
    (id,) = commands.submit(job(name="again", sbatch={"requeue": True}))
    wait_for(lambda: commands.queue("again")[id].state == "RUNNING")
    commands.requeue(id)
    wait_for(lambda: commands.queue("again")[id].state == "PENDING")
    with pytest.raises(TuneError, match="`scontrol requeue 99999` failed: Invalid job id"):
        commands.requeue("99999")


def test_a_job_of_a_job_gets_nothing_of_its_parents(cluster: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    """With SLURM_MEM_PER_CPU and SLURM_MEM_PER_NODE srun would not even start."""
    for name, value in {"SLURM_JOB_ID": "5", "SLURM_MEM_PER_CPU": "1", "SLURM_RESTART_COUNT": "9"}.items():
        monkeypatch.setenv(name, value)
    (id,) = commands.submit(job("env", name="child", output=f"{cluster.directory}/child.out", mem="100"))
    wait_for(lambda: (commands.ended(id) or [""])[0] == "COMPLETED")
    said = (cluster.directory / "child.out").read_text()
    assert f"SLURM_JOB_ID={id}\n" in said
    assert "SLURM_MEM_PER_NODE=100\n" in said
    assert "SLURM_MEM_PER_CPU" not in said
    assert "SLURM_RESTART_COUNT" not in said


def test_a_controller_that_is_silent_is_asked_again_and_gets_the_job_once(cluster: Slurm) -> None:
    got: list[str] = []
    cluster.kill_controller()
    try:
        with pytest.raises(SlurmSilentError, match="Slurm's controller does not answer: Unable to contact"):
            commands.queue("late", patience_s=0)
        waits = threading.Thread(target=lambda: got.extend(commands.submit(job(name="late"))))
        waits.start()
    finally:
        cluster.start_controller()
    waits.join(PATIENCE_S)
    assert len(got) == 1
    assert set(commands.queue("late")) == set(got)


def test_while_munged_is_started_again_slurm_is_asked_again(cluster: Slurm) -> None:
    socket, away = cluster.directory / "munge.socket", cluster.directory / "away"
    socket.rename(away)
    try:
        with pytest.raises(SlurmSilentError, match="Munge"):
            commands.queue("none", patience_s=0)
        with pytest.raises(SlurmSilentError, match="Munge"):
            commands.submit(job(name="none"), patience_s=0)
    finally:
        away.rename(socket)
    assert commands.queue("none") == {}


def test_ctrl_c_of_a_terminal_reaches_no_command() -> None:
    done = asking.run(sys.executable, "-c", "import os; print(os.getsid(0))")
    assert int(done.stdout) != os.getsid(0)


def test_an_answer_that_got_lost_does_not_make_a_second_job(cluster: Slurm, tmp_path: Path, monkeypatch: Any) -> None:
    """sbatch that times out after Slurm has got its job, the first time."""
    fake = tmp_path / "sbatch"
    fake.write_text(
        f'#!/bin/sh\n/usr/bin/sbatch "$@" || exit\n[ -e {tmp_path}/once ] && exit\ntouch {tmp_path}/once\n'
        "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2\nexit 1\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    ids = commands.submit(job(name="once"), count=2)
    assert sorted(commands.queue("once")) == sorted(ids)
    assert len(ids) == 2


def test_a_machine_without_slurm_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        SettingError, match=r"there is no Slurm on this machine: sbatch is not found; start the run on a login"
    ):
        commands.submit(job())
    with pytest.raises(SettingError, match="sinfo is not found"):
        commands.test(job())


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_accounts_tell_of_jobs_that_the_queue_has_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """sacct needs a database of its own: what it prints is given."""
    said = "70007|p|1000|1060|COMPLETED\n70008|p|2000|Unknown|CANCELLED by 0\n70009_1|q|3000|3005|RUNNING"
    (tmp_path / "sacct").write_text(f"#!/bin/sh\n[ $5 = --starttime=now-7days ] && cat <<END\n{said}\nEND\n")
    (tmp_path / "sacct").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = {job.id: job for job in commands.waited()}
    assert (found["70007"].waited_s, found["70007"].started) == (60, True)
    assert (found["70009_1"].waited_s, found["70009_1"].partition) == (5, "q")
    assert "70008" not in found
