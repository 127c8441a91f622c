"""tuner logs, and what else is seen of a run that goes on, and after it was killed: one real run for all."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.replicated import answer, refused
from tuner.cli import main

SCRIPT = Path(__file__).parents[2] / "scripts" / "prints_and_waits.py"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}


def said(*arguments: str | Path) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main([str(argument) for argument in arguments]) == 0
    return out.getvalue()


def started(*arguments: str | Path, out: Path | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, *map(str, arguments)]
    with open(out or os.devnull, "w") as file:
        return subprocess.Popen(command, env=ENVIRONMENT, text=True, stdout=file, stderr=subprocess.PIPE)


class Watched:
    """What was seen of the script's run: while it ran, after it was killed, and by who followed it then."""

    def __init__(self, place: Path) -> None:
        self.place, self.path, self.go = place, place / "waits", place / "go"
        first = self.waiting(0)
        self.running, self.shown = self.look()
        first.kill()
        first.communicate()
        self.killed, self.shown_killed = self.look()
        second = self.waiting(1)
        followers = [
            started("-m", "tuner.cli", "logs", self.path, "-f", *which, out=place / f"followed{len(which)}")
            for which in ([], ["2"])
        ]
        self.until(lambda: all(self.followed(number).count("100%|") >= 2 for number in (0, 1)), *followers)
        self.go.touch()
        why = [follower.communicate(timeout=60)[1] for follower in followers]
        second.communicate(timeout=60)
        (self.all, self.last), (self.all_ended, self.last_ended) = map(self.followed, (0, 1)), why

    def followed(self, number: int) -> str:
        return (self.place / f"followed{number}").read_text()

    def until(self, seen: Callable[[], bool], *running: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + 60
        while not seen():
            assert time.monotonic() < deadline and all(one.poll() is None for one in running), running[0].communicate()
            time.sleep(0.02)

    def printed(self) -> int:
        """How often the last trial has begun."""
        return sum(file.read_text().count("begins") for file in self.path.glob("train_*_00002/stdout"))

    def waiting(self, before: int) -> subprocess.Popen[str]:
        """Return a driver that runs the last trial, which waits; the others have ended."""
        driver = started(SCRIPT, self.place, self.go)
        self.until(lambda: self.printed() > before and self.both_ended(), driver)
        return driver

    def both_ended(self) -> bool:
        shown = said("show", self.path)
        return "returned" in shown and "failed: ValueError" in shown

    def look(self) -> tuple[dict[str, Any], str]:
        """What `ls` has of it, and `show`."""
        rows = json.loads(said("ls", self.place, "--json"))
        return next(row for row in rows if row["name"] == "waits"), said("show", self.path)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    yield Watched(tmp_path_factory.mktemp("watched"))


def test_ls_tells_a_running_one_from_a_killed_one(watched: Watched) -> None:
    assert (watched.running["state"], watched.killed["state"]) == ("running", "killed")
    assert watched.running["running"] > 0 and watched.killed["running"] == 0, "what ran waits for a resume"
    assert watched.running["best"] == {"metric": "loss", "value": 0.0, "trial": 0}
    row = said("ls", watched.place).splitlines()[1].split()
    assert row[0] == "waits" and row[3:8] == ["finished", "loss", "0", "3", "2"]
    at = watched.killed["started_at"]
    assert watched.running["started_at"] == at and f"{row[1]} {row[2]}" >= time.strftime(
        "%Y-%m-%d %H:%M", time.localtime(at)
    ), "the last start"


def test_show_says_why_a_trial_does_not_go_on(watched: Watched) -> None:
    assert "running (pid " in watched.shown and "the driver was killed" not in watched.shown
    assert "\nkilled (pid " in watched.shown_killed and 'and resume="AUTO"' in watched.shown_killed
    (waiting,) = [line for line in watched.shown_killed.splitlines() if line.startswith("2 ")]
    assert "running: the driver was killed" in waiting
    last = watched.shown_killed.rstrip().splitlines()[-1]
    assert last.startswith("1 ") and "failed: ValueError: as configured" in last, "failures stand apart"


def test_who_follows_sees_all_until_the_end(watched: Watched) -> None:
    lines = watched.last.splitlines()
    assert lines[:6] == ["trial 2 begins", "trial 2 begins", "", "==> stderr <==", "100%|", "100%|"]
    assert lines[6:] == ["", "==> stdout <==", "and ends"]
    assert watched.last_ended == "tuner logs: trial 2 has ended: returned\n"
    assert watched.all.splitlines().count("trial 2 | and ends") == 1 and "trial 1 stderr | 100%|\n" in watched.all
    assert watched.all_ended == "tuner logs: the run has ended: finished\n"


def test_a_trials_output_its_errors_and_what_the_driver_warned_of_it(
    watched: Watched, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = answer(capsys, "logs", watched.path, "1")
    assert failed.startswith("trial 1 begins\n\n==> stderr <==\n100%|\n\n==> error.txt <==\nFailure # 1 ")
    assert failed.rstrip().endswith("ValueError: as configured")
    assert answer(capsys, "logs", watched.path, "0", "-n", "1") == "and ends\n\n==> stderr <==\n100%|\n"
    every = answer(capsys, "logs", watched.path, "-n", "1").splitlines()
    assert [line for line in every if not line.startswith(("driver", "trial 1", "trial 2"))] == [
        "trial 0 | and ends",
        "trial 0 stderr | 100%|",
    ]


def test_of_a_replica_the_same_is_seen(watched: Watched, capsys: pytest.CaptureFixture[str]) -> None:
    there = (watched.place / "copy" / "waits").as_uri()
    assert answer(capsys, "logs", there, "1") == answer(capsys, "logs", watched.path, "1")


def prints(config: dict[str, Any]) -> None:
    print("out")
    print("err", file=sys.stderr)
    tune.report({"loss": 1.0})


def test_files_of_a_users_own_are_read_and_none_outside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tune.run(prints, name="own", storage_path=tmp_path, log_to_file=("a.txt", "b.txt"), verbose=0)
    assert answer(capsys, "logs", tmp_path / "own", "0") == "out\n\n==> b.txt <==\nerr\n"
    described = tmp_path / "own" / "experiment.json"
    (tmp_path / "secret").write_text("secret\n")
    outside = json.loads(described.read_text()) | {"log_files": ["../../secret", str(tmp_path / "secret")]}
    described.write_text(json.dumps(outside))
    assert "secret" not in answer(capsys, "logs", tmp_path / "own", "0")


def test_what_is_not_there_is_said(watched: Watched, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "there is no trial '9'; there are 3" in refused(capsys, "logs", watched.path, "9")
    assert "--lines=-1 is not accepted" in refused(capsys, "logs", watched.path, "--lines=-1")
    shutil.copytree(watched.path, tmp_path / "copy")
    for file in (tmp_path / "copy").glob("train_*/std*"):
        file.unlink()
    assert main(["logs", str(tmp_path / "copy"), "0"]) == 0
    assert 'executor="inline" prints where the run was started' in capsys.readouterr().err
