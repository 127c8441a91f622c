"""Runs one experiment for the campaign of orders, life after life: a job per line of stdin, a JSON answer per line.

Each life is a process of its own, forked where everything is imported already, so that a thousand of them are minutes.
A job may name the change of the disk before which its life is killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tuner as tune
from trainables.store import fs
from tuner.driver import loop
from tuner.schedulers import ASHAScheduler, FIFOScheduler, HyperBandForBOHB, PopulationBasedTraining

CHANGING = ("rename", "link", "unlink", "write", "create", "fsync", "fdatasync", "mkdir", "chmod", "truncate")
TRIALS, ITERATIONS = 4, 40


SCHEDULERS = {
    "fifo": FIFOScheduler,
    "asha": lambda: ASHAScheduler(max_t=ITERATIONS, grace_period=5),
    "hyperband": lambda: HyperBandForBOHB(max_t=ITERATIONS),
    "pbt": lambda: PopulationBasedTraining(perturbation_interval=5, hyperparam_mutations={"rate": [1, 2, 9]}, seed=1),
}


class Adds(tune.Trainable):
    """Its sum tells how often each step was done; where a token lies, a step fails."""

    def setup(self, config: dict[str, Any]) -> None:
        self.count, self.sum = 0, 0.0

    def step(self) -> dict[str, Any]:
        time.sleep(self.config["step_s"])
        self.count += 1
        self.sum = self.sum * 0.9 + self.config["rate"] * self.count
        token = Path(self.config["tokens"], f"{self.config['rate']}-{self.count}")
        if token.exists():
            token.unlink()
            raise ValueError("there was a token")
        return {"sum": self.sum}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "state").write_text(f"{self.count} {self.sum!r}")

    def load_checkpoint(self, checkpoint_dir: Any) -> None:
        count, total = Path(checkpoint_dir, "state").read_text().split()
        self.count, self.sum = int(count), float(total)


def kill_before(change: int) -> None:
    """The process is gone before that change of the disk, counted from now on."""
    left = change

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **more)

        return call

    for name in CHANGING:
        setattr(fs, name, counted(getattr(fs, name)))


def live(job: dict[str, Any]) -> None:
    loop.LOOK_S = job["look_s"]
    if job["kill_before"] is not None:
        kill_before(job["kill_before"])
    tune.run(
        Adds,
        name="e",
        storage_path=job["storage"],
        config={
            "rate": tune.grid_search(list(range(1, TRIALS + 1))),
            "tokens": job["tokens"],
            "step_s": job["step_s"],
        },
        stop={"training_iteration": ITERATIONS},
        resume="AUTO",
        executor=job["executor"],
        resources_per_trial={"cpu": 0.5},
        checkpoint_freq=job["save_every"],
        keep_checkpoints_num=1,
        raise_on_failed_trial=False,
        verbose=0,
        seed=1,
        scheduler=SCHEDULERS[job["scheduler"]](),
        metric="sum",
        mode="max",
        sync_config=tune.SyncConfig(upload_dir=job["upload_dir"]) if job["upload_dir"] else None,
    )


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                live(json.loads(line))
                status = 0
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        print(json.dumps({"pid": child}), flush=True)
        _, status = os.waitpid(child, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    main()
