"""The book of jobs, and the queue with a real Slurm: submitted, cancelled, looked for, and what ends too early."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers.slurm import Slurm, slurm
from tuner.error import SettingError, TuneError
from tuner.executors.base import Event
from tuner.executors.reactor import Reactor
from tuner.executors.slurm.job_queue import JobBook, JobQueue, JobRequest

PATIENCE_S = 60.0
SCRIPT = "#!/bin/sh\n#SBATCH --job-name=e-2\n#SBATCH --output={}/%j.out\n{}\n"


@pytest.fixture(scope="module")
def started() -> Iterator[Slurm]:
    with slurm() as cluster:
        yield cluster


class Turning:
    """A queue, and the loop that it stands in."""

    def __init__(self, directory: Path, *, array: bool = True) -> None:
        self.reactor, self.directory = Reactor(), directory
        self.queue = JobQueue(self.reactor, JobBook(directory / "jobs", 2, "e-2"), array=array, seen=lambda there: None)

    def submit(self, count: int, line: str = "exec sleep 600") -> None:
        self.queue.submit(JobRequest(SCRIPT.format(self.directory, line), count, self.directory / "%j.out"))

    def until(self, holds: Callable[[], object]) -> None:
        end, events = time.monotonic() + PATIENCE_S, list[Event]()
        while not holds():
            assert time.monotonic() < end
            self.reactor.wait(0.1, events)
            self.queue.look(now=True)


@pytest.fixture
def turning(started: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Turning]:
    monkeypatch.setenv("SLURM_CONF", str(started.conf))
    turning = Turning(tmp_path)
    yield turning
    turning.queue.close()
    started.run("scancel", "--user=root")
    started.cancel_all()


def test_ids_are_written_down(tmp_path: Path) -> None:
    JobBook(tmp_path / "jobs", 1, "e-1").add(["5", "6_0"])
    second = JobBook(tmp_path / "jobs", 2, "e-2", ["e-1"])
    second.add(["6_0", "7"])
    assert second.path.read_text().splitlines() == ["1 5", "1 6_0", "2 6_0", "2 7"]
    assert second.names == "e-2,e-1"


@pytest.mark.root
def test_jobs_come_and_go(turning: Turning, started: Slurm) -> None:
    turning.submit(3)
    jobs = turning.queue
    assert len(jobs) == jobs.awaited == 3
    turning.until(lambda: len(jobs.by_id) == 3)
    (array,) = {id.partition("_")[0] for id in jobs.by_id}
    assert set(jobs.by_id) == {f"{array}_{task}" for task in range(3)}
    assert jobs.book.path.read_text().split()[::2] == ["2"] * 3
    assert jobs.met(f"{array}_0", "node")
    assert jobs.awaited == 2
    jobs.cancel_awaited()
    turning.until(lambda: started.run("squeue", "-h", "-r", "-o", "%i").split() == [f"{array}_0"])
    assert not jobs.met(f"{array}_1", "node")  # it had begun just now
    jobs.close(keep=True)
    assert started.run("squeue", "-h", "-r", "-o", "%i").split() == [f"{array}_0"]


@pytest.mark.root
def test_a_refusal_and_jobs_that_end_at_once_are_raised(turning: Turning) -> None:
    turning.submit(1, "#SBATCH --partition=none")
    with pytest.raises(SettingError, match="partition"):
        turning.until(lambda: False)
    turning.submit(3, "echo broken; exit 7")
    with pytest.raises(TuneError, match=r"exit status 7\) before its agent had come.*3 in a row did"):
        turning.until(lambda: False)


@pytest.mark.root
def test_what_is_refused_or_of_no_use_while_others_work_is_tried_again_later(turning: Turning) -> None:
    turning.submit(1)
    jobs = turning.queue
    turning.until(lambda: len(jobs.by_id) == 1)
    assert jobs.met(next(iter(jobs.by_id)), "node")
    assert not jobs.paused_s
    turning.submit(1, "#SBATCH --partition=none")
    turning.until(lambda: jobs.paused_s and len(jobs) == 1)
    jobs._luck.paused_until = 0.0
    turning.submit(3, "exit 7")
    turning.until(lambda: jobs.paused_s and len(jobs) == 1)
