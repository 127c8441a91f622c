"""What a person may get wrong with Slurm: each is named before the first trial, and no job is left."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tuner as tune
from tests.failures.slurm_runs import until
from tests.servers.slurm import Slurm, slurm
from tuner.error import SettingError, TuneError
from tuner.executors import SlurmExecutor

pytestmark = [pytest.mark.root]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    with slurm(partitions={"p": "MaxTime=60", "short": "MaxTime=1"}) as cluster:
        yield cluster


def train(config: dict[str, float]) -> None:
    tune.report({"i": 1})


def run(directory: Path, executor: SlurmExecutor | str, resources: dict[str, float] | None = None) -> None:
    tune.run(train, executor=executor, storage_path=directory, name="e", verbose=0, resources_per_trial=resources)


def test_no_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingError, match="no Slurm on this machine: sinfo is not found"):
        run(tmp_path, "slurm")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"partition": "gpu"}, "partition='gpu' is not accepted; there are p .*, short"),
        ({"partition": "short"}, "time='02:00:00' is not accepted; partition short allows up to 00:01:00"),
        ({"cpus_per_task": 7, "time": "10"}, "cpus_per_task=7 is not accepted; nodes of partition p have 2 cpus"),
        ({"listen": "eth99", "time": "10"}, "listen='eth99': there is no such address on this machine"),
    ],
)
def test_what_slurm_does_not_take(
    cluster: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], said: str
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    with pytest.raises(SettingError, match=said):
        run(tmp_path, SlurmExecutor(jobs=1, **given))  # type: ignore[arg-type]
    assert not cluster.jobs()


def test_more_than_a_job_has(cluster: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    with pytest.raises(TuneError, match="asks for cpu: 2, and no node"):
        run(tmp_path, SlurmExecutor(jobs=1, time="10", cpus_per_task=1), {"cpu": 2})


def test_a_directory_that_jobs_do_not_see(cluster: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    hidden = tmp_path / "results"
    hidden.mkdir()
    executor = SlurmExecutor(jobs=1, time="10", setup=f"mount -t tmpfs none {hidden}")
    with pytest.raises(TuneError, match=f"does not see {hidden}/e/.slurm: choose a storage_path"):
        run(hidden, executor)
    until("no job is left", lambda: not cluster.jobs())


def test_a_job_that_finds_no_driver_ends(cluster: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    run(tmp_path, SlurmExecutor(jobs=1, time="10"))
    file = tmp_path / "e" / ".slurm" / "driver.json"
    for generation in (1, 0):  # the driver is gone; another one was there since
        job = cluster.sbatch(
            f"#!/bin/sh\nexec {sys.executable} -m tuner.executors.slurm.agent_job {file} {generation}\n"
        )
        cluster.wait_for(job, "FAILED", within_s=60)
        assert f"no driver of generation {generation} is there" in cluster.output(job)


def test_setup_that_fails_is_said_with_what_it_wrote(
    cluster: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    with pytest.raises(TuneError, match=r"exit status 3\) before its agent had come.*no module cuda.*in a row did"):
        run(tmp_path, SlurmExecutor(jobs=1, time="10", setup="echo no module cuda; exit 3"))


def test_agents_that_do_not_start_end_the_run(cluster: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    broken = "import tuner.executors.host_agent.host_survey as found\nfound.survey = lambda *given: 1 / 0\n"
    (tmp_path / "sitecustomize.py").write_text(broken)
    executor = SlurmExecutor(jobs=1, time="10", setup=f"export PYTHONPATH={tmp_path}")
    with pytest.raises(TuneError, match="its agent does not start: .*division by zero. 3 in a row did not"):
        run(tmp_path, executor)
    until("no job is left", lambda: not cluster.jobs())
