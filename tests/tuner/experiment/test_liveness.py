"""Whether an experiment's driver still runs, by its record, its process and its lock."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from tests.tuner.experiment.harness import Driver, write_record
from tuner.clock import SystemClock
from tuner.experiment.liveness import Liveness, last_driver
from tuner.experiment.lock import claim
from tuner.experiment.paths import ExperimentPaths


def seen(paths: ExperimentPaths, now: float = 0.0) -> Liveness:
    return last_driver(paths, now).liveness


def test_a_driver_runs_until_it_has_ended_or_is_killed(paths: ExperimentPaths, driver: Callable[[], Driver]) -> None:
    assert seen(paths) is Liveness.UNKNOWN
    owner = claim(paths, clock=SystemClock())
    assert seen(paths) is Liveness.RUNNING, "by this very process"
    owner.release()
    assert seen(paths) is Liveness.ENDED
    other = driver()
    other.order("claim", root=str(paths.root))
    assert str(last_driver(paths, 0.0)).startswith(f"running (pid {other.pid} on ")
    os.kill(other.pid, signal.SIGKILL)
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # dead, and a zombie still
    assert seen(paths) is Liveness.KILLED


def test_who_owned_it_for_a_moment_and_wrote_nothing_is_passed_over(
    paths: ExperimentPaths, driver: Callable[[], Driver]
) -> None:
    other = driver()
    other.order("claim", root=str(paths.root))
    os.kill(other.pid, signal.SIGKILL)
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    owner = claim(paths, clock=SystemClock())
    owner.release()
    assert seen(paths) is Liveness.KILLED
    paths.journal.mkdir(exist_ok=True)
    paths.segment(owner.generation, 1).touch()
    assert seen(paths) is Liveness.ENDED


def test_a_copy_of_what_runs_does_not_run(paths: ExperimentPaths, driver: Callable[[], Driver], tmp_path: Path) -> None:
    driver().order("claim", root=str(paths.root))
    shutil.copytree(paths.root, tmp_path / "copy")
    assert seen(paths) is Liveness.RUNNING
    assert seen(ExperimentPaths(tmp_path / "copy")) is Liveness.KILLED


def test_one_of_another_machine_runs_as_long_as_its_heart_beats(paths: ExperimentPaths) -> None:
    write_record(paths)
    written = paths.generation(1).stat().st_mtime
    assert seen(paths, written) is Liveness.UNKNOWN, "no lock: this is a copy, whose times are its own"
    paths.lock.touch()
    assert [seen(paths, written + silent) for silent in (59, 61)] == [Liveness.RUNNING, Liveness.KILLED]
    paths.heartbeats(1).write_text("held 7\n")
    assert seen(paths, written) is Liveness.RUNNING
    paths.heartbeats(1).write_text("released 7\n")
    assert seen(paths, written) is Liveness.ENDED
