"""Packs of history and driver.log: what goes to a replica, what comes from it, what is deleted there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tuner.syncer.submitted import Submitted
from trainables.net.failed import FailureKind
from trainables.transfer import transfer_jobs
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.state import ExperimentState
from tuner.syncer.inventory import Inventory
from tuner.syncer.streams.experiment_files import ExperimentFiles

PACKS = [f"000001-{first:08d}-{first + 9:08d}.jsonl.gz" for first in (1, 11, 21)]


@pytest.fixture
def paths(tmp_path: Path) -> ExperimentPaths:
    paths = ExperimentPaths(tmp_path / "e")
    paths.history.mkdir(parents=True)
    return paths


def taken_up(paths: ExperimentPaths, *there: str) -> tuple[Submitted, ExperimentFiles]:
    submitted = Submitted(paths)
    files = ExperimentFiles(submitted.context)
    files.take_up(ExperimentState(paths.root), Inventory(names=[f"journal/history/{name}" for name in there]))
    return submitted, files


def test_packs_go_one_after_another_the_oldest_first_and_the_log_after_them(paths: ExperimentPaths) -> None:
    for name in PACKS[:2]:
        (paths.history / name).touch()
    paths.driver_log.write_text("said\n")
    submitted, files = taken_up(paths)
    assert files.is_behind and files.missing() == [*(f"journal/history/{name}" for name in PACKS[:2]), "driver.log"]
    pushed = []
    while jobs := submitted.starts(files):
        assert len(jobs) == 1
        job = submitted.end()
        assert isinstance(job, transfer_jobs.Push)
        pushed += [names for _, _, names in job.groups]
    assert pushed == [[PACKS[0]], [PACKS[1]], ["driver.log"]] and files.drained and files.has_history


def test_the_log_goes_again_with_the_period_after_something_was_written(paths: ExperimentPaths) -> None:
    paths.driver_log.write_text("said\n")
    submitted, files = taken_up(paths)
    submitted.starts(files)
    submitted.end()
    paths.driver_log.write_text("said\nand more\n")
    assert not submitted.starts(files)
    files.period()
    assert len(submitted.starts(files)) == 1


def test_what_fails_is_sent_again_after_a_pause(paths: ExperimentPaths) -> None:
    (paths.history / PACKS[0]).touch()
    submitted, files = taken_up(paths)
    submitted.starts(files)
    submitted.end(failed=FailureKind.TRANSFER)
    due = files.due_at(submitted.clock.monotonic())
    assert due is not None and not submitted.starts(files)
    submitted.clock.advance(due - submitted.clock.monotonic())
    assert len(submitted.starts(files)) == 1


def test_packs_that_only_the_replica_has_come_here_the_newest_first(paths: ExperimentPaths) -> None:
    submitted, files = taken_up(paths, *PACKS[:2])
    assert files.drained, "nothing waits for them"
    (job,) = submitted.starts(files)
    assert isinstance(job, transfer_jobs.FetchFiles) and job.names == [PACKS[1]]
    submitted.end()
    files.closing = True
    assert not submitted.starts(files), "at the end they are left there"


def test_what_was_dropped_here_is_deleted_there(paths: ExperimentPaths) -> None:
    (paths.history / PACKS[0]).touch()
    submitted, files = taken_up(paths, PACKS[0])
    (paths.history / PACKS[0]).unlink()
    submitted.journal.packed = 1
    (job,) = submitted.starts(files)
    assert isinstance(job, transfer_jobs.Delete) and job.keys == [f"e/journal/history/{PACKS[0]}"]
