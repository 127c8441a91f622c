"""A scripted agent through a night in which everything is killed: itself, its server, drivers and trials."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

import tuner as tune
from tests.tuner.mcp.agent import Agent, agent

SCRIPT = Path(__file__).parents[3] / "examples" / "agent_loop.py"
STEPS = 6
PATIENCE_S = 100
LOOK_S = 2.0
_SHARES = {"agent": 0.2, "server": 0.4, "driver": 0.4, "trial": 0.4}  # of all kills, at most


def _processes(place: Path) -> dict[str, list[psutil.Process]]:
    """Those that may be killed, by what they are."""
    found: dict[str, list[psutil.Process]] = {"server": [], "driver": [], "trial": []}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if str(place) not in words:
                continue
            if "mcp" in words and "tuner.cli" in words:
                found["server"].append(process)
            elif "tuner.mcp.started_run" in words:
                found["driver"].append(process)
                found["trial"] += [each for each in process.children(recursive=True) if not each.children()]
    return found


def _night(place: Path, count: int, chance: random.Random, kills_at_most: int) -> tuple[str, Counter[str]]:
    """What the agent printed in the end, and how often what was killed.

    Args:
        kills_at_most: then it is left alone, so that it ends.
    """
    killed: Counter[str] = Counter()
    said = place.parent / "said.txt"
    while True:
        with said.open("w") as out:
            script = subprocess.Popen(
                [sys.executable, str(SCRIPT), str(place), str(count)],
                stdout=out,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": str(SCRIPT.parents[1])},
            )
        while script.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                script.wait(chance.uniform(0.3, 2.5))
            if killed.total() >= kills_at_most:
                continue
            there: dict[str, list[Any]] = {"agent": [script], **_processes(place)}
            until = time.monotonic() + LOOK_S
            while killed["trial"] <= _SHARES["trial"] / 2 * killed.total() and not there["trial"]:
                if time.monotonic() >= until or script.poll() is not None:
                    break
                there = {"agent": [script], **_processes(place)}  # trials live for a moment only
            # Of what lives now, for trials do so for a moment only. An agent or a server that is killed each time it
            # has begun would never come to have a driver.
            kinds = [what for what, share in _SHARES.items() if there[what] and killed[what] <= share * killed.total()]
            if kinds:
                what = min(kinds, key=lambda kind: killed[kind] / _SHARES[kind])
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chance.choice(there[what]).pid, signal.SIGKILL)
                    killed[what] += 1
        if script.returncode == 0:
            return said.read_text(), killed
        assert script.returncode == -signal.SIGKILL, script.returncode


def _check_trials(place: Path, name: str, forks: int) -> None:
    """None is lost, none twice, and each goes on from the newest checkpoint that it had."""
    experiment = tune.open_experiment(place / name)
    assert len(experiment.trials) == 2 + forks
    for trial in experiment.trials:
        assert trial.status == "TERMINATED", (name, trial)
        assert trial.iteration == STEPS
    begun = [fact for fact in experiment.changes() if fact["kind"] == "created"]
    assert Counter(fact["trial"] for fact in begun).most_common(1)[0][1] == 1
    results: dict[str, list[int]] = {}
    for fact in experiment.changes():
        if fact["kind"] == "result":
            results.setdefault(fact["trial"], []).append(fact["iteration"])
        elif fact["kind"] == "rolled_back":
            results[fact["trial"]] = [each for each in results[fact["trial"]] if each <= fact["iteration"]]
    for trial in experiment.trials:
        start = trial.fork.donor.iteration if trial.fork is not None else 0
        assert results[trial.trial_id] == list(range(start + 1, STEPS + 1)), (name, trial)


def _check_answers(reader: Agent, name: str, forks: int) -> None:
    """What, why, from which checkpoint."""
    told = reader.tool("trials", experiment=name)
    assert told["matching"] == 2 + forks
    for row in told["trials"]:
        why = reader.tool("why", experiment=name, trial=row["trial"])
        assert why["state"] == "done" and "returned" in why["why"]
        attempts = reader.tool("trial", experiment=name, trial=row["trial"], section="attempts", limit=50)["attempts"]
        again = [each for each in attempts if each["iteration"] and each["number"] > 1]
        assert all(each["from"].startswith("checkpoint_") for each in again)
        assert {"lr", "momentum"} == set(row["config"])


def _check_night(place: Path, count: int, seed: int, kills_at_most: int) -> dict[str, int]:
    place.mkdir()
    printed, killed = _night(place, count, random.Random(seed), kills_at_most)

    best = printed.splitlines()[0].split()[1].strip(",")
    assert f"budget: {2 * count + 1} of {2 * count + 1} trials" in printed
    names = sorted(path.name for path in place.iterdir() if (path / "experiment.json").exists())
    assert names == [f"night-{number:03d}" for number in range(count)]
    for name in names:
        _check_trials(place, name, forks=int(name == best))
    with agent(place.parent, place) as reader:
        listed, cursor = [], ""
        while cursor is not None:
            page = reader.tool("experiments", cursor=cursor)
            listed += [row["experiment"] for row in page["experiments"]]
            cursor = page["cursor"]
        assert listed == names
        for name in names:
            _check_answers(reader, name, forks=int(name == best))
    deadline = time.monotonic() + PATIENCE_S
    while any(found := _processes(place).values()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(found), "a process is left"
    return killed


@pytest.mark.timeout(600)
def test_ten_experiments_while_everything_is_killed(tmp_path: Path) -> None:
    killed: Any = _check_night(tmp_path / "night", 10, seed=1, kills_at_most=14)
    print(killed)
    assert killed["server"] and killed["driver"]


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_hundred_experiments_while_everything_is_killed(tmp_path: Path) -> None:
    killed: Any = _check_night(tmp_path / "night", 100, seed=int(os.environ.get("SEED", "2")), kills_at_most=200)
    print(killed)
    assert min(killed[what] for what in _SHARES) > 5, killed
