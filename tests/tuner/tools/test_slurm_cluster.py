"""`tuner doctor --executor slurm` on a real one: what a job gets, and what is in the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.slurm import Slurm, slurm
from tuner.cli import main
from tuner.tools import slurm_probe

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("apart")


@pytest.fixture(scope="module")
def cluster(apart: Path) -> Iterator[Slurm]:
    with slurm(gpus=2, partitions={"p": "MaxTime=60 DefaultTime=5", "q": "MaxTime=1"}, apart=[apart]) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def here(cluster: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a cluster in which the jobs of the test before have ended, and whose nodes take jobs again."""
    cluster.cancel_all()
    cluster.wait_for_nodes()
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))


def written(directory: Path, storage: Path, options: str, resources: str = "{cpu: 1}") -> str:
    (directory / "train.py").write_text("import numpy\n")
    config = directory / "c.yaml"
    config.write_text(
        f"trainable: train.py:train\nresources_per_trial: {resources}\nstorage_path: {storage}\n"
        f"executor: {{slurm: {options}}}\n"
    )
    return str(config)


def said_by(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = main(["doctor", *words])
    return status, capsys.readouterr().out


def test_a_job_on_two_nodes_says_what_it_gets_and_leaves_nothing(
    cluster: Slurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "{time: '30', cpus_per_task: 2, gpus_per_node: 1, mem: 500M, sbatch: {nodes: 2}}"
    config = written(tmp_path, tmp_path / "results", options, "{cpu: 1, gpu: 0.5}")
    status, said = said_by(capsys, config)
    assert status == 0, said
    assert "slurm: partition p: 2 of 2 nodes are up; the largest has 2 cpus, 2 gpus" in said
    assert "jobs may take 01:00:00, 00:05:00 when none is asked for" in said
    assert "there are also the partitions q" in said
    for node in ("n1", "n2"):
        assert f"on {node}: it gets 2 cpu, 1 gpu, 524.3 MB memory" in said
        assert f"on {node}: a trial asks for 1 cpu, 0.5 gpu: 2 at once" in said
        assert f"on {node}: it reaches this host" in said
        assert f"{node} (127.0.0.1): its packages are those of here" in said
        assert f"{node} (127.0.0.1): its clock is the one here" in said
    assert f"jobs see {tmp_path / 'results'}: checkpoints lie there, and are not copied" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.yaml", "train.py"]
    cluster.cancel_all()
    assert "your last job waited " in said_by(capsys, config, "--executor", "slurm", "--wait", "30")[1]


def test_a_job_that_does_not_start_is_cancelled_and_that_is_said(
    cluster: Slurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for node in cluster.nodes:
        node.drain()
    try:
        status, said = said_by(capsys, written(tmp_path, tmp_path, "{time: '30'}"), "--wait", "0.5")
    finally:
        for node in cluster.nodes:
            node.resume()
    assert status == 0, said
    assert "has not started in 0 s (" in said or "has not started in 1 s (" in said
    assert "and is cancelled; what a job gets is not known: again with a longer --wait" in said
    assert cluster.jobs() == []


def test_a_directory_that_jobs_do_not_see_is_a_problem(
    apart: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = said_by(capsys, written(tmp_path, apart, "{time: '30'}"))
    assert status == 1
    assert f"left nothing in {apart}; choose a storage path that jobs see" in said
    assert list(apart.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "resources", "expected"),
    [
        ("{partition: nope}", "{cpu: 1}", "partition='nope' is not accepted; there are p (up to 01:00:00), q (up to"),
        ("{time: '02:00:00'}", "{cpu: 1}", "time='02:00:00' is not accepted; partition p allows up to 01:00:00"),
        ("{time: '30', cpus_per_task: 1}", "{cpu: 2}", "a trial asks for 2 cpu; let jobs ask for more, or trials for"),
        ("{time: '30', listen: no-such-host.invalid}", "{cpu: 1}", "listen='no-such-host.invalid': nobody can listen"),
    ],
)
def test_what_is_in_the_way_is_a_problem(
    options: str, resources: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = said_by(capsys, written(tmp_path, tmp_path, options, resources))
    assert status == 1
    assert expected in said


def test_a_machine_without_slurm_has_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    status, said = said_by(capsys, "--executor", "slurm", "--storage-path", str(tmp_path))
    assert status == 1
    assert (
        "problem  slurm: there is no Slurm on this machine: sinfo is not found; start the run on a login node" in said
    )


def test_a_probe_that_does_not_reach_the_doctor_leaves_what_it_saw_beside(tmp_path: Path) -> None:
    told = {
        "address": ["127.0.0.1", 9],
        "key": "00",
        "storage": str(tmp_path),
        "packages": {},
        "mark": "",
        "place": None,
    }
    (tmp_path / "probe.json").write_text(json.dumps(told))
    assert slurm_probe.main([str(tmp_path / "probe.json")]) == 0
    (file,) = tmp_path.glob("*.seen")
    seen = slurm_probe.read(json.loads(file.read_text()))
    assert "refused" in seen.problem
    assert seen.facts.storage.tried == tmp_path
