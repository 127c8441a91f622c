"""Processes of dead owners: told apart, named, and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tuner.experiment.harness import Driver, dead_here, lives, write_record
from tuner.clock import SystemClock
from tuner.error import OwnedElsewhereError
from tuner.experiment.lock import claim
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.processes import OWNER_VARIABLE


def test_what_a_dead_owner_left_running_is_ended_before_the_claim_returns(
    paths: ExperimentPaths, driver: Callable[[], Driver]
) -> None:
    first, bystander = driver(), driver()
    first.order("claim", root=str(paths.root))
    bystander.order("claim", root=str(paths.root.parent / "other"))
    marked, recorded = first.start(lock=True), first.start(marked=False, recorded=True, lock=True)
    reused = first.start(marked=False, recorded=True, off=-1)  # that pid, but not that process
    others = bystander.start()
    first.kill()
    owner = claim(paths, clock=SystemClock())
    assert not lives(marked) and not lives(recorded)
    assert lives(reused), "never by a bare pid"
    assert lives(others), "another experiment's"
    owner.release()


def test_one_that_holds_the_lock_and_cannot_be_told_is_named(
    paths: ExperimentPaths, driver: Callable[[], Driver]
) -> None:
    first = driver()
    first.order("claim", root=str(paths.root))
    nameless = first.start(marked=False, lock=True)
    first.kill()
    with pytest.raises(OwnedElsewhereError, match=rf"{nameless} \(sleep 600\)"):
        claim(paths, clock=SystemClock())
    fd = os.pidfd_open(nameless)
    os.kill(nameless, signal.SIGKILL)
    signal_end(fd)
    owner = claim(paths, clock=SystemClock())
    assert owner.generation == 2, "a refused claim leaves no number behind"
    owner.release()


def signal_end(fd: int) -> None:
    import select

    poller = select.poll()
    poller.register(fd, select.POLLIN)
    poller.poll()
    os.close(fd)


def test_a_torn_line_of_recorded_processes_names_nobody(paths: ExperimentPaths) -> None:
    write_record(paths, **dead_here())
    paths.processes(1).write_text(f"{os.getpid()} 1\n{os.getpid()}")
    claim(paths, clock=SystemClock()).release()


def test_the_claimant_and_its_ancestors_are_spared(
    paths: ExperimentPaths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A run started inside a trial of the dead owner must not end itself."""
    write_record(paths, **dead_here())
    code = (
        "import sys; from pathlib import Path; from tuner.clock import SystemClock\n"
        "from tuner.experiment.lock import claim; from tuner.experiment.paths import ExperimentPaths\n"
        f"print(claim(ExperimentPaths(Path({str(paths.root)!r})), clock=SystemClock()).generation)"
    )
    shell = f'{sys.executable} -c "$CODE"; true'
    environment = {**os.environ, OWNER_VARIABLE: "id-1", "CODE": code}
    run = subprocess.run(["sh", "-c", shell], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "2", run.stderr
