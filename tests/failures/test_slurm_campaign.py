"""Many trials through jobs of a real Slurm, while the driver is requeued and nodes go down."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.failures.slurm_runs import SlurmScript, until
from tests.servers.slurm import slurm

pytestmark = [pytest.mark.root]


def requeue(script: SlurmScript, process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """End the driver as Slurm does that requeues it as planned, and start the next one."""
    process.send_signal(signal.SIGUSR2)
    code = process.wait(120)
    assert code == 143, script.output().read_text()
    return script.start()


def finished(script: SlurmScript) -> int:
    """How many trials have reported their last step."""
    steps = script.settings["steps"]
    return sum(path.read_text().count("\n") >= steps for path in script.root.glob("*/result.json"))


def test_twenty_trials_and_a_requeue(tmp_path: Path) -> None:
    with slurm() as cluster:
        script = SlurmScript(cluster, tmp_path, trials=20, steps=4, free=4, pause=0.25, slurm={"jobs": 4})
        process = script.start()
        until("some have ended", lambda: finished(script) >= 6, process, script.output())
        process = requeue(script, process)
        script.ends(process)
        until("no job is left", lambda: not script.left())


@pytest.mark.soak
@pytest.mark.timeout(5400)
def test_two_hundred_trials_five_requeues_and_nodes_that_go_down(tmp_path: Path) -> None:
    rng = random.Random(19)
    with slurm(cpus=4, settings="OverTimeLimit=0") as cluster:
        script = SlurmScript(
            cluster, tmp_path, trials=200, steps=20, free=20, pause=1.0, slurm={"jobs": 8, "time": "2"}
        )
        process, requeues, down = script.start(), 0, None
        next_strike = time.monotonic() + 30
        while process.poll() is None:
            if requeues < 5 and finished(script) >= 30 * (requeues + 1):
                process, requeues = requeue(script, process), requeues + 1
            if time.monotonic() >= next_strike:
                if down is None:
                    down = rng.choice(cluster.nodes)
                    down.down()
                else:
                    down.start()  # jobs begin there at once
                    down = None
                next_strike = time.monotonic() + rng.uniform(15, 60)
            time.sleep(0.5)
        assert requeues == 5
        script.ends(process)
        until("no job is left", lambda: not script.left())


def test_a_run_that_is_interrupted_leaves_no_job(tmp_path: Path) -> None:
    with slurm() as cluster:
        script = SlurmScript(cluster, tmp_path)
        process = script.start()
        script.wait_for_gate(process)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) != 0, script.output().read_text()
        until("no job is left", lambda: not script.left())
        script.go()
        script.ends(script.start())
