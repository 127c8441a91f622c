"""tuner watch: a run seen from another process, while it goes on, is killed and goes on again."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.tuner.progress.emulator import Emulator
from tests.tuner.replicated import answer, refused
from tuner.cli.watch import WatchLoop
from tuner.error import ExperimentNotFoundError
from tuner.experiment.paths import ExperimentPaths
from tuner.progress.screen import PlainScreen
from tuner.tools.watching import WatchedDirectory

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "tests" / "scripts" / "live_run.py"
WATCH = [sys.executable, "-m", "tuner.cli", "watch"]


@contextmanager
def ended_with(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def running(storage: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The script, with both its running trials at their fourth result until there is a file `go`."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (storage / "printed").open("ab") as printed:
        command = [sys.executable, str(SCRIPT), str(storage), str(storage / "go")]
        process = subprocess.Popen(command, stdout=printed, stderr=printed, env=environ)
    with ended_with(process):
        yield process


def waits(terminal: Emulator) -> bool:
    """Both have their fourth result, and the checkpoint of their third, which is published beside the next step."""
    rows = [line.split() for line in terminal.lines]
    there = sum("running" in row and row[2:3] == ["4"] for row in rows) == 2
    return there and "a kill now would lose 2 results" in terminal.text


def watching(experiment: Path) -> list[str]:
    return [sys.executable, str(SCRIPT.with_name("when_there.py")), str(experiment), *WATCH]


@contextmanager
def watched_in_a_log(experiment: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen(watching(experiment), stdout=out, stderr=out)
    with ended_with(process):
        yield process


def test_what_is_seen_of_a_run_that_is_killed_resumed_and_ends(tmp_path: Path) -> None:
    experiment, log = tmp_path / "live", tmp_path / "log"
    with (
        running(tmp_path) as run,
        Emulator(watching(experiment), 80) as terminal,
        watched_in_a_log(experiment, log) as lines,
    ):
        terminal.until(waits)
        assert max(map(len, terminal.lines)) <= 80
        assert "1 of 9 trials done, 2 running, 6 waiting, 1 failed" in terminal.text
        assert "best validation/loss " in terminal.text and "a kill now would lose 2 results" in terminal.text
        assert f"driver (pid {run.pid} on " in terminal.text
        assert terminal.colours("failed: ValueError") >= {"red"}
        wait_for(log, " of 9 trials done, ")
        before = files(experiment)
        run.kill()
        run.wait()
        terminal.until(lambda seen: "the driver was killed" in seen.text)
        assert "running: its driver is " in terminal.text and " left" not in terminal.text
        wait_for(log, "the driver was killed")
        assert files(experiment) == before, "who watches touches nothing"
        with running(tmp_path):
            terminal.until(lambda seen: waits(seen) and "killed" not in seen.text)
            (tmp_path / "go").touch()
            assert terminal.ended() == 1, "three trials failed"
            assert lines.wait(30) == 1
    assert terminal.text.count("9 of 9 trials done, 3 failed") == 1
    assert terminal.lines[-1] == "the run has ended: finished"
    told = log.read_text().splitlines()
    assert " of 9 trials done, " in told[0] and max(map(len, told)) < 400
    assert [line for line in told if line.startswith("trial 3: failed: ValueError: no convergence at depth 1;")]
    assert sum(": ASHA's limit: 9 iterations; validation/loss " in line for line in told) == 6
    assert len(told) < 40


def files(experiment: Path) -> set[Path]:
    return {path for path in experiment.rglob("*") if path.is_file()}


def wait_for(file: Path, text: str) -> None:
    """Until a line with that text is written, as `tail -f` has it."""
    with subprocess.Popen(["tail", "-n", "+1", "-f", str(file)], stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        assert any(text in line for line in tail.stdout)
        tail.kill()


def test_one_that_has_ended_is_shown_once(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = answer(capsys, "watch", experiment)
    assert "3 of 3 trials done, 12 results" in told and told.count("the run has ended: finished") == 1
    assert answer(capsys, "watch", experiment, "--once") == told


def test_the_watching_ends_with_an_error_when_the_experiment_is_removed(experiment: Path) -> None:
    (experiment / "generations" / "lock").unlink()
    records = sorted((experiment / "generations").glob("*.json"))
    records[-1].write_bytes(records[-1].read_bytes().replace(b'"state":"released"', b'"state":"held    "'))
    watched = WatchLoop(WatchedDirectory(ExperimentPaths(experiment)), PlainScreen(io.StringIO()))
    assert not watched.look(), "as if its driver had been killed after its last word"
    shutil.rmtree(experiment)
    with pytest.raises(ExperimentNotFoundError):
        watched.look()


def test_what_is_no_experiment_cannot_be_watched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no experiment at" in refused(capsys, "watch", tmp_path)


def test_ctrl_c_ends_the_watching_and_leaves_the_last_view(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        experiment = tmp_path / "live"
        with Emulator(
            [sys.executable, str(SCRIPT.with_name("when_there.py")), str(experiment), *WATCH], 80
        ) as terminal:
            terminal.until(waits)
            assert "Ctrl-C ends the watching; the run goes on" in terminal.lines
            os.kill(terminal.process.pid, signal.SIGINT)
            assert terminal.ended() == 130
        assert waits(terminal) and "Traceback" not in terminal.text and "Ctrl-C" not in terminal.text
        assert run.poll() is None, "the run goes on"
