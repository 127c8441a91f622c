"""A disk that turns read-only in mid-run, as the kernel does when it finds an error in the filesystem (F16, F30).

Nothing is damaged, it is said in one screen with the path, and a resume goes on when the disk is mended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from checkpoint_faults import iterations, rows

import tuner as tune
from tests.servers.powered import Disk, powered_disk
from trainables.user_frames import last_said

pytestmark = [pytest.mark.root]

STEPS, TRIALS = 40, 2
PATIENCE_S = 90.0
SCREEN = 40
"""Lines."""
SCRIPT = """
import sys, time
from pathlib import Path
import tuner as tune
from tuner.driver import fact_log

fact_log.FULL_PATIENCE_S = 0.5  # seconds for which trials wait for a disk

def count(config):
    checkpoint, start = tune.get_checkpoint(), 0
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            start = int(Path(directory, "count").read_text())
    for n in range(start + 1, int(sys.argv[2]) + 1):
        if n % 2:
            with tune.checkpoint_dir() as directory:
                Path(directory, "count").write_text(str(n))
        tune.report(n=n)
        with open(sys.argv[3], "a") as told:
            told.write(f"{n}\\n")
        time.sleep(0.02)

tune.run(
    count,
    name="e",
    storage_path=sys.argv[1],
    executor=sys.argv[4],
    num_samples=2,
    keep_checkpoints_num=2,
    resources_per_trial={"cpu": 0.5},
    resume="AUTO",
    verbose=int(sys.argv[5]),
)
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with powered_disk(tmp_path / "powered", "ext4") as made:
        yield made


class Runs:
    """The script, on that disk."""

    def __init__(self, disk: Disk, place: Path, executor: str) -> None:
        self.disk, self.place, self.told, self.executor = disk, place, place / "told", executor
        self.told.touch()
        (place / "script.py").write_text(SCRIPT)

    def start(self, verbose: int = 1) -> subprocess.Popen[bytes]:
        given = [self.disk.place / "results", STEPS, self.told, self.executor, verbose]
        command = [*self.disk.command(self.place), sys.executable, "script.py", *map(str, given)]
        environment = {**os.environ, "HOME": str(self.place), "PYTHONPATH": os.pathsep.join(sys.path)}
        with open(self.place / "output", "wb") as output:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, process_group=0
            )

    def wait_for(self, steps: int, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.told.read_bytes().count(b"\n") < steps:
            assert process.poll() is None and time.monotonic() < deadline, self.output
            time.sleep(0.005)

    @property
    def output(self) -> str:
        return (self.place / "output").read_text()


@pytest.mark.parametrize("executor", ["local", "inline"])
def test_f30_a_disk_that_turns_read_only_damages_nothing_is_named_and_a_resume_goes_on(
    executor: str, disk: Disk, tmp_path: Path
) -> None:
    runs = Runs(disk, tmp_path, executor)
    process = runs.start()
    try:
        runs.wait_for(15, process)
        disk.turn_read_only()
        status = process.wait(PATIENCE_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    said = runs.output
    assert status == 1, said
    assert str(disk.place / "results") in said and "Read-only file system" in said
    ours, _, python = said.partition("\nTraceback")  # what an uncaught error looks like is python's
    assert len(ours.splitlines()) <= SCREEN and "free some space" not in said, said
    last = last_said(python.partition("\nto continue: ")[0])  # whichever call met the disk first
    assert ("cannot write to" in last or "could not be made durable" in last) and python.count("Traceback") <= 2, python
    for trial in tune.ExperimentAnalysis(disk.seen / "results" / "e").trials:
        assert trial.status != "TERMINATED"
        iterations(trial)
    disk.mend()
    left = tune.ExperimentAnalysis(disk.seen / "results" / "e").trials
    before = {trial.trial_id: iterations(trial) for trial in left}
    again = runs.start()
    assert again.wait(PATIENCE_S) == 0, runs.output
    trials = tune.ExperimentAnalysis(disk.seen / "results" / "e").trials
    assert len(trials) == TRIALS
    for trial in trials:
        had = before.get(trial.trial_id)
        assert trial.status == "TERMINATED"
        assert [row["n"] for row in rows(trial)] == list(range(1, STEPS + 1))
        assert not had or iterations(trial)[-1] > had[-1]
