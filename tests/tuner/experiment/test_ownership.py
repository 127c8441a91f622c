"""An owner: how it finds out that another took over, gives signs of life, and lets go."""

from __future__ import annotations

import os
import shutil
import threading
import time

import pytest

from tests.tuner.experiment.harness import dead_here, write_record
from tuner.clock import SystemClock
from tuner.error import OwnedElsewhereError
from tuner.experiment.generations import read_records
from tuner.experiment.lock import claim
from tuner.experiment.ownership import beating
from tuner.experiment.paths import ExperimentPaths


def test_a_stale_owner_finds_out_who_took_over(paths: ExperimentPaths) -> None:
    write_record(paths, **dead_here())
    stale = claim(paths, clock=SystemClock())
    stale.check()
    write_record(paths, 3, host="newhost")
    for call in (stale.check, stale.heartbeat):
        with pytest.raises(OwnedElsewhereError, match="taken over by generation 3: pid 7 on newhost"):
            call()
    stale.release()


def test_an_owner_finds_out_that_its_directory_is_gone(paths: ExperimentPaths) -> None:
    owner = claim(paths, clock=SystemClock())
    shutil.rmtree(paths.root)
    with pytest.raises(OwnedElsewhereError, match="removed or replaced"):
        owner.check()
    owner.release()


def test_a_directory_that_cannot_be_looked_at_just_now_is_not_called_gone(paths: ExperimentPaths) -> None:
    owner = claim(paths, clock=SystemClock())
    moved = paths.generations.with_name("moved")
    paths.generations.rename(moved)
    paths.generations.symlink_to(paths.generations.name)  # every look fails, and not for want of a name
    owner.check()
    paths.generations.unlink()
    moved.rename(paths.generations)
    owner.check()
    paths.generations.rename(moved)
    paths.generations.touch()
    with pytest.raises(OwnedElsewhereError, match="removed or replaced"):
        owner.check()
    paths.generations.unlink()
    owner.release()


def test_the_heartbeat_counts_in_place(paths: ExperimentPaths) -> None:
    owner = claim(paths, clock=SystemClock())
    before = os.stat(paths.generation(1))
    for _ in range(12):
        owner.heartbeat()
    (record,) = read_records(paths)
    assert (record.heartbeat, record.released, record.id) == (12, False, owner.id)
    after = os.stat(paths.generation(1))
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)
    owner.release()
    assert read_records(paths)[0].released


def test_f49_a_sign_of_life_that_cannot_be_written_ends_nothing(
    paths: ExperimentPaths, caplog: pytest.LogCaptureFixture
) -> None:
    owner = claim(paths, clock=SystemClock())
    moved = paths.generations.with_name("moved")
    for _ in range(2):
        paths.generations.rename(moved)
        paths.generations.symlink_to(paths.generations.name)  # it is there, and cannot be written to
        owner.heartbeat()
        owner.heartbeat()
        paths.generations.unlink()
        moved.rename(paths.generations)
        owner.heartbeat()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2 and all("no sign of life could be written (Too many levels" in line for line in said), said
    assert read_records(paths)[0].heartbeat == 6
    caplog.clear()
    paths.generations.rename(moved)
    paths.generations.symlink_to(paths.generations.name)
    owner.release()
    (line,) = [record.getMessage() for record in caplog.records]
    assert "not released" in line


def test_an_owner_that_is_busy_gives_signs_of_life(paths: ExperimentPaths) -> None:
    owner = claim(paths, clock=SystemClock())
    with beating(owner, every_s=0.01):
        deadline = time.monotonic() + 30
        while read_records(paths)[0].heartbeat < 3:
            assert time.monotonic() < deadline
    beats = read_records(paths)[0].heartbeat
    with pytest.raises(OwnedElsewhereError, match="taken over"), beating(owner, every_s=0.01):
        paths.generation(2).touch()
        while "heartbeat" in {thread.name for thread in threading.enumerate()}:
            assert time.monotonic() < deadline
    assert read_records(paths)[0].heartbeat == beats
    owner.release()
