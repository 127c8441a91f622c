"""A script whose trials run in jobs of a real Slurm, and what a test sees of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.servers.slurm import PATIENCE_S, Slurm
from tuner.executors.local.process_tree import is_zombie, marked
from tuner.executors.local.server import MARKER
from tuner.experiment.generations import read_records
from tuner.experiment.paths import ExperimentPaths

SCRIPT = """
import json, os, signal, sys, time
from pathlib import Path
import tuner as tune
from tuner.executors import SlurmExecutor

settings = json.loads(sys.argv[1])


def train(config):
    signs, steps = Path(config["signs"]), config["steps"]
    held = tune.get_checkpoint()
    first = held.to_dict()["i"] if held else 0
    number = int(tune.get_context().get_trial_id().rpartition("_")[2])
    array, task = (os.environ.get(f"SLURM_ARRAY_{name}_ID") for name in ("JOB", "TASK"))
    job = f"{array}_{task}" if array else os.environ["SLURM_JOB_ID"]  # as scancel takes it
    with (signs / f"starts-{number}").open("a") as file:
        file.write(json.dumps([first, job, time.time()]) + "\\n")
    for i in range(first + 1, steps + 1):
        while i > config["free"] and not (signs / "go").exists():
            if tune.get_context().should_stop():
                tune.report({"i": i, "job": job}, checkpoint=tune.Checkpoint.from_dict({"i": i}))
                return
            time.sleep(0.02)
        time.sleep(config["pause"])
        tune.report({"i": i, "job": job}, checkpoint=tune.Checkpoint.from_dict({"i": i}))


def requeued(*_):
    executor.leave_agents()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR2, requeued)
    executor = SlurmExecutor(**settings.pop("slurm"))
    own = {key: settings.pop(key) for key in ("signs", "steps", "free", "pause")}
    analysis = tune.run(
        train, config={"x": tune.grid_search(list(range(settings.pop("trials")))), **own}, executor=executor,
        **{"resume": "AUTO", "metric": "i", "mode": "max", "keep_checkpoints_num": 1,
           "raise_on_failed_trial": False, **settings},
    )
    found = {}
    for trial in analysis.trials:
        told = Path(trial.path) / "result.json"
        rows = [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []
        found[trial.index] = {
            "status": trial.status, "failures": trial.num_failures, "i": [row["i"] for row in rows],
            "jobs": [row["job"] for row in rows],
        }
    print("FOUND", json.dumps(found))
"""


class SlurmScript:
    """One experiment of `SCRIPT`.

    Args:
        directory: for everything that it writes.
        slurm: arguments of `SlurmExecutor`.
        settings: of `tune.run`, and `trials`, `steps`, `free`: steps that wait for no `go`, and `pause`: seconds that a
            step takes.
    """

    def __init__(
        self, cluster: Slurm, directory: Path, *, slurm: dict[str, Any] | None = None, **settings: Any
    ) -> None:
        self.cluster, self.directory = cluster, directory
        self.signs, self.root = directory / "signs", directory / "results" / "e"
        self.signs.mkdir()
        self.script = directory / "script.py"
        self.script.write_text(SCRIPT)
        own = {"trials": 2, "steps": 4, "free": 2, "pause": 0.0, "signs": str(self.signs)}
        self.settings = {"storage_path": str(directory / "results"), "name": "e", **own, **settings}
        self.settings["slurm"] = {"jobs": 2, "time": "10", **(slurm or {})}
        self._lives = 0

    def start(self) -> subprocess.Popen[str]:
        self._lives += 1
        with self.output(self._lives).open("w") as file:
            return subprocess.Popen(
                [sys.executable, str(self.script), json.dumps(self.settings)],
                env={**os.environ, **self.cluster.env, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=self.directory,
            )

    def output(self, life: int | None = None) -> Path:
        return self.directory / f"output-{life or self._lives}"

    def go(self) -> None:
        """Let the trials go on to their end."""
        (self.signs / "go").touch()

    def starts(self, number: int) -> list[list[Any]]:
        """The attempts of a trial: (step it went on from, job, when)."""
        path = self.signs / f"starts-{number}"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for_gate(self, process: subprocess.Popen[str]) -> None:
        """Every trial has saved its free steps, and waits."""
        gate = f"checkpoint_{self.settings['free']:06}"
        until(
            "all trials wait",
            lambda: len(list(self.root.glob(f"*/{gate}*"))) >= self.settings["trials"],
            process,
            self.output(),
        )

    def ends(self, process: subprocess.Popen[str]) -> dict[int, dict[str, Any]]:
        """Wait for its good end; what it found: every trial ended, each of its results once, and no failure."""
        code = process.wait(2 * PATIENCE_S)
        output = self.output().read_text()
        assert code == 0, f"{output}\n{self.cluster.logs()}"
        line = next(line for line in output.splitlines() if line.startswith("FOUND "))
        found = {int(number): trial for number, trial in json.loads(line.removeprefix("FOUND ")).items()}
        for trial in found.values():
            assert trial["status"] == "TERMINATED", output
            assert trial["i"] == list(range(1, self.settings["steps"] + 1)), output
            assert trial["failures"] == 0, output
        assert len(found) == self.settings["trials"]
        return found

    def kill(self, process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGKILL)
        process.wait()

    def agents(self) -> list[int]:
        """Processes of agents, as the test numbers them."""
        found = []
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                words = (directory / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"tuner.executors.slurm.agent_job" in words and os.fsencode(self.root / ".slurm/driver.json") in words:
                found.append(int(directory.name))
        return found

    def trials(self) -> list[int]:
        """Processes that trials, or those that start them, have left or are."""
        records = read_records(ExperimentPaths(self.root))
        return [pid for record in records for pid in marked(MARKER, record.id) if not is_zombie(pid)]

    def left(self) -> list[int]:
        """Jobs, agents and trials that are there."""
        return [*self.cluster.jobs(), *self.agents(), *self.trials()]


def until(
    what: str,
    holds: Callable[[], Any],
    process: subprocess.Popen[str] | None = None,
    output: Path | None = None,
    within_s: float = 2 * PATIENCE_S,
) -> Any:
    """Wait until something holds; returns it."""
    end = time.monotonic() + within_s
    while not (result := holds()):
        said = output.read_text() if output is not None else ""
        assert process is None or process.poll() is None, f"{what}: the script ended before that:\n{said}"
        assert time.monotonic() < end, f"{what}: not within {within_s} s:\n{said}"
        time.sleep(0.05)
    return result
