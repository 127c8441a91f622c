"""The Slurm that other tests stand on: it runs jobs, loses nodes, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers.slurm import PATIENCE_S, Slurm, slurm

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

_WAITS = "#!/bin/sh\necho $SLURM_RESTART_COUNT $(hostname)\nexec sleep 600"
_OWNER = """
import sys
from tests.servers.slurm import slurm

with slurm() as cluster:
    job = cluster.sbatch("#!/bin/sh\\nexec sleep 86.42")
    cluster.wait_for(job, "RUNNING")
    print("up", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    with slurm(gpus=2, partitions={"long": "MaxTime=60", "short": "MaxTime=1"}) as cluster:
        yield cluster


def test_a_job_has_nodes_gpus_and_steps_on_each(cluster: Slurm) -> None:
    script = "#!/bin/sh\nhostname; echo $CUDA_VISIBLE_DEVICES; srun hostname | sort"
    job = cluster.sbatch(script, "--nodes=2", "--gpus-per-node=1")
    cluster.wait_for(job, "COMPLETED")
    assert cluster.output(job).split() == ["n1", "0", "n1", "n2"]


def test_a_job_is_requeued_when_it_asks_and_when_its_node_goes_down(cluster: Slurm) -> None:
    job = cluster.sbatch(_WAITS, "--nodelist=n1", "--requeue", "--partition=short")
    cluster.wait_for(job, "RUNNING")
    cluster.run("scontrol", "requeue", str(job))
    _wait_until(lambda: cluster.job(job)["Restarts"] == "1" and cluster.state(job) == "RUNNING")
    cluster.nodes[0].down()
    cluster.wait_for(job, "PENDING")
    cluster.nodes[0].up()
    _wait_until(lambda: cluster.job(job)["Restarts"] == "2" and cluster.state(job) == "RUNNING")
    cluster.cancel_all()
    assert cluster.jobs() == []
    cluster.wait_for_nodes()


def test_two_are_up_at_once(cluster: Slurm) -> None:
    with slurm(nodes=1, cpus=8, settings="KillWait=7") as other:
        assert "KillWait                = 7 sec" in other.run("scontrol", "show", "config")
        assert other.run("sinfo", "-h", "-o", "%N %c %P").split() == ["n1", "8", "p*"]
        assert cluster.run("sinfo", "-h", "-o", "%D %c %P").split() == ["2", "2", "long*", "2", "2", "short"]


def test_nothing_is_left_when_its_test_is_killed() -> None:
    root = Path(__file__).resolve().parents[2]
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None and owner.stdout.readline() == "up\n"
        _wait_until(lambda: _commands("sleep\x0086.42"))
        owner.kill()
    _wait_until(lambda: not _commands("sleep\x0086.42"))


def _commands(beginning: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [said] if (said := entry.read_text("utf-8", "replace")).startswith(beginning) else []
        except OSError:
            continue
    return found


def _wait_until(condition: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
