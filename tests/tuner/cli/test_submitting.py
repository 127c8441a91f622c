"""`tuner run --executor slurm --submit` on a real Slurm: a driver that is a job, and outlives its job's end."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.slurm import PATIENCE_S, Slurm, slurm
from tuner.cli import main
from tuner.cli.submitting import Submission, before_end_s, driver_options
from tuner.error import SettingError
from tuner.executors.slurm.batch_options import BatchOptions

pytestmark = [pytest.mark.root, pytest.mark.timeout(400)]

TRAIN = """
import os, time
from pathlib import Path
import tuner as tune

GO = Path(__file__).with_name("go")

def train(config):
    held = tune.get_checkpoint()
    first = held.to_dict()["i"] if held else 0
    for i in range(first + 1, 5):
        while i > 2 and not GO.exists():
            if tune.get_context().should_stop():
                return
            time.sleep(0.02)
        job = os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ["SLURM_JOB_ID"]
        tune.report({"i": i, "job": job}, checkpoint=tune.Checkpoint.from_dict({"i": i}))
"""


@pytest.fixture(scope="module")
def started() -> Iterator[Slurm]:
    with slurm(cpus=4, partitions={"p": "MaxTime=60", "q": "MaxTime=5"}) as cluster:
        yield cluster


@pytest.fixture
def cluster(started: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    monkeypatch.setenv("SLURM_CONF", str(started.conf))
    yield started
    started.cancel_all()


class Submitted:
    """An experiment of `TRAIN`, whose driver is a job."""

    def __init__(self, cluster: Slurm, directory: Path, capsys: pytest.CaptureFixture[str], slurm: str = "") -> None:
        self.cluster, self.directory, self._capsys = cluster, directory, capsys
        self.root = directory / "results" / "c"
        (directory / "train.py").write_text(TRAIN)
        self.config = directory / "c.yaml"
        self.config.write_text(
            f"trainable: train.py:train\nstorage_path: {directory / 'results'}\nnum_samples: 2\nmetric: i\nmode: max\n"
            f"executor: {{slurm: {{jobs: 2, time: '30'{slurm}}}}}\n"
        )

    def submit(self, *words: str) -> int:
        """Returns the job's id."""
        status = main(["run", str(self.config), "--executor", "slurm", "--submit", *words])
        said = self._capsys.readouterr()
        assert status == 0, said.err
        assert f"is the driver of {self.root}" in said.out
        return int(said.out.split()[1])

    def refused(self, *words: str) -> str:
        assert main(["run", str(self.config), *words]) == 2
        return self._capsys.readouterr().err

    def wait_for_gate(self, job: int) -> None:
        """Both trials have saved twice, and wait."""
        self.until(job, lambda: len(list(self.root.glob("train_*/checkpoint_000002*"))) == 2)

    def until(self, job: int, holds: Callable[[], object], within_s: float = PATIENCE_S) -> None:
        end = time.monotonic() + within_s
        while not holds():
            state = self.cluster.state(job)
            assert time.monotonic() < end and state != "FAILED", f"{state}\n{self.output()}\n{self.cluster.logs()}"
            time.sleep(0.05)

    def output(self) -> str:
        return "".join(path.read_text("utf-8", "replace") for path in sorted(self.root.glob(".slurm/*.out")))

    def go(self) -> None:
        (self.directory / "go").touch()

    def ends(self, job: int) -> list[list[dict[str, Any]]]:
        """Wait for the good end of the driver's job; the results of each trial, each of which is there once."""
        self.until(job, lambda: self.cluster.state(job) == "COMPLETED")
        found = []
        for file in sorted(self.root.glob("train_*/result.json")):
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            assert [row["i"] for row in rows] == [1, 2, 3, 4], self.output()
            found.append(rows)
        assert len(found) == 2
        self.until(job, lambda: not self.cluster.jobs())
        return found


def test_before_its_end_the_driver_waits_in_the_queue_again_and_its_agents_wait_for_it(
    cluster: Slurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Submitted(cluster, tmp_path, capsys)
    job = run.submit("--driver", "time=20")
    assert "already (" in run.refused("--submit")
    run.wait_for_gate(job)
    agents = set(cluster.jobs()) - {job}
    cluster.run("scancel", "--signal=USR2", "--batch", str(job))  # what Slurm sends 120 s before the end
    run.until(job, lambda: cluster.job(job)["Restarts"] == "1")
    assert set(cluster.jobs()) == agents | {job}
    run.go()
    found = run.ends(job)
    assert all(len({row["job"] for row in rows}) == 1 for rows in found)
    assert "resuming from" in run.output()
    assert "0 errors" not in run.output()
    script = (run.root / ".slurm/driver.sh").read_text()
    assert "#SBATCH --time=20\n" in script
    assert "#SBATCH --requeue\n" in script
    assert (run.root / ".slurm").stat().st_mode & 0o077 == 0


def test_after_its_nodes_end_slurm_starts_it_again_and_it_takes_over(
    cluster: Slurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Submitted(cluster, tmp_path, capsys, slurm=", sbatch: {nodelist: n2}")
    # Without takeover it waits for a minute: the old driver might live, on a node that only the controller cannot see.
    job = run.submit("--driver", "sbatch.nodelist=n1", "--set", "takeover=true")
    run.wait_for_gate(job)
    cluster.nodes[0].down()
    try:
        run.until(job, lambda: cluster.state(job) == "PENDING")
    finally:
        cluster.nodes[0].up()
    run.go()
    run.ends(job)
    assert cluster.job(job)["Restarts"] == "1"
    assert run.output().count("resuming from") == 1


def test_one_that_is_cancelled_ends_in_order_and_overwrites_once_only(
    cluster: Slurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Submitted(cluster, tmp_path, capsys)
    job = run.submit()
    run.wait_for_gate(job)
    cluster.run("scancel", str(job))
    end = time.monotonic() + PATIENCE_S
    while cluster.jobs():
        assert time.monotonic() < end
        time.sleep(0.05)
    assert "ended early (preempted)" in run.output()
    assert "exists: --set resume=AUTO continues it, --set overwrite=true replaces it" in run.refused("--submit")
    before = {path.name for path in run.root.glob("train_*")}
    other = run.submit("--set", "overwrite=true")
    run.until(other, lambda: not before & {path.name for path in run.root.glob("train_*")})
    run.wait_for_gate(other)
    after = {path.name for path in run.root.glob("train_*")}
    cluster.run("scancel", "--signal=USR2", "--batch", str(other))
    run.until(other, lambda: cluster.job(other)["Restarts"] == "1")
    run.go()
    run.ends(other)
    assert {path.name for path in run.root.glob("train_*")} == after


def test_where_it_cannot_be_requeued_another_job_goes_on(
    cluster: Slurm, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site may forbid it."""
    forbids = tmp_path / "bin" / "scontrol"
    forbids.parent.mkdir()
    forbids.write_text(
        '#!/bin/sh\n[ "$1" = requeue ] && echo "Access/permission denied" >&2 && exit 1\nexec /usr/bin/scontrol "$@"\n'
    )
    forbids.chmod(0o755)
    run = Submitted(cluster, tmp_path, capsys)
    with monkeypatch.context() as patched:
        patched.setenv("PATH", f"{forbids.parent}:{os.environ['PATH']}")
        job = run.submit()
    run.wait_for_gate(job)
    agents = set(cluster.jobs()) - {job}
    cluster.run("scancel", "--signal=USR2", "--batch", str(job))
    run.until(job, lambda: cluster.state(job) == "COMPLETED")
    (other,) = set(cluster.jobs()) - agents
    assert f"job {job} cannot be requeued" in run.output()
    run.go()
    run.ends(other)


@pytest.mark.soak
def test_slurm_tells_the_driver_before_its_end_and_each_life_goes_on(
    cluster: Slurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Submitted(cluster, tmp_path, capsys)
    job = run.submit("--driver", "time=2")
    run.wait_for_gate(job)
    run.until(job, lambda: int(cluster.job(job)["Restarts"]) >= 2, within_s=400)
    run.go()
    run.ends(job)


@pytest.mark.soak
def test_without_takeover_it_waits_until_no_older_driver_can_live(
    cluster: Slurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Submitted(cluster, tmp_path, capsys, slurm=", sbatch: {nodelist: n2}")
    job = run.submit("--driver", "sbatch.nodelist=n1")
    run.wait_for_gate(job)
    cluster.nodes[0].down()
    cluster.nodes[0].up()
    run.until(job, lambda: "resuming from" in run.output(), within_s=200)
    run.go()
    run.ends(job)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--submit", "--executor", "local"], "--submit goes with --executor slurm, and not with executor='local'"),
        (["--driver", "time=1"], "--driver time=1 goes with --submit, which is not there"),
        (["--submit", "--driver", "gpus=1"], "--driver 'gpus=1' is not accepted; accepted is KEY=VALUE, KEY of partit"),
        (["--submit", "--driver", "time=soon"], "time='soon' is not accepted"),
        (["--submit", "--driver", "partition=q", "--driver", "time=20"], "partition q allows up to 00:05:00"),
        (["--submit", "--set", "executor.slurm.partition=q"], "time='30' is not accepted; partition q allows up to"),
        (["--submit", "--set", "trainable=none.py:train"], "trainable='none.py:train': there is no file"),
    ],
)
def test_what_cannot_be_submitted_is_refused_and_leaves_nothing(
    words: list[str], said: str, cluster: Slurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Submitted(cluster, tmp_path, capsys)
    assert said in run.refused(*words)
    assert cluster.jobs() == []
    assert not run.root.exists()


def test_the_drivers_job_asks_for_what_a_driver_needs() -> None:
    jobs = BatchOptions(partition="gpu", account="a", gpus_per_node=4, mem="90G", sbatch={"qos": "high", "nodes": 2})
    assert driver_options(jobs, []).lines() == [
        "--partition=gpu", "--cpus-per-task=1", "--account=a", "--qos=high", "--requeue",
    ]  # fmt: skip
    given = ["partition=cpu", "time=1-00:00:00", "mem=4G", "cpus_per_task=2", "sbatch.qos=low", "sbatch.exclusive="]
    assert driver_options(jobs, given).lines() == [
        "--partition=cpu", "--time=1-00:00:00", "--cpus-per-task=2", "--mem=4G", "--account=a", "--qos=low",
        "--exclusive", "--requeue",
    ]  # fmt: skip
    with pytest.raises(SettingError, match=r"--driver 'sbatch.nodes=2' is not accepted"):
        driver_options(jobs, ["sbatch.nodes=2"])
    assert [before_end_s(BatchOptions(time=time)) for time in ("1", "4", "2:00:00")] == [15, 60, 120]


def test_a_later_life_goes_on_and_the_first_does_as_it_was_told(tmp_path: Path) -> None:
    said = {"trainable": "m:f", "name": "e", "storage_path": str(tmp_path), "overwrite": True}
    submission = Submission(said, str(tmp_path), 0)
    assert submission.described(tmp_path / "e").said["overwrite"] is True
    assert Submission(said, str(tmp_path), -1).described(tmp_path / "e").said["resume"] == "AUTO"
