"""Trainables of the stored samples.

The samples hold these by reference, as a user's own experiments hold theirs: what is here keeps its name and its
meaning for good. New samples get new names.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import trainables as train
import tuner as tune
from tests.data.values import Kind, alike, large_values, odd_values
from trainables.data_parallel_trainer import DataParallelTrainer

PACE = "SAMPLES_PACE"
"""Seconds that a step takes, in the environment of whoever writes samples that are killed while they copy."""
FAULTY = "SAMPLES_FAULTY"
"""That a disk refuses something, likewise."""


def value_of(config: dict[str, Any], step: int) -> float:
    """What a trial reports: a pure function of its config, so that no step can be made twice or left out unseen."""
    return random.Random(f"{config.get('x', 0)}:{step}").random()


def work() -> None:
    time.sleep(float(os.environ.get(PACE, "0")))


class Walker(tune.Trainable):
    """Its score is the sum of all rates that it ever had; a dict is saved."""

    def setup(self, config: dict[str, Any]) -> None:
        self.walked: list[float] = []

    def step(self) -> dict[str, Any]:
        work()
        self.walked.append(self.config["x"])
        return {"score": round(sum(self.walked), 12), "steps": len(self.walked)}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"walked": self.walked, "weights": np.arange(4, dtype=np.float32), "kind": Kind.FAST, 3: (1, None)}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        assert checkpoint["kind"] is Kind.FAST and checkpoint[3] == (1, None)
        assert checkpoint["weights"].tolist() == [0.0, 1.0, 2.0, 3.0]
        self.walked = checkpoint["walked"]


class Files(tune.Trainable):
    """Saves files, with an empty directory among them."""

    def setup(self, config: dict[str, Any]) -> None:
        self.steps = 0

    def step(self) -> dict[str, Any]:
        self.steps += 1
        return {"score": value_of(self.config, self.steps), "eval": {"loss": -float(self.steps)}}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        _write(checkpoint_dir, self.steps)

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        self.steps = _read(checkpoint_dir)
        assert self.steps == self.iteration


def _write(directory: str, steps: int) -> None:
    Path(directory, "steps").write_text(str(steps))
    Path(directory, "deep", "empty").mkdir(parents=True)
    Path(directory, "deep", "weights").write_bytes(bytes([steps]) * 300)


def _read(directory: str) -> int:
    steps = int(Path(directory, "steps").read_text())
    assert Path(directory, "deep", "weights").read_bytes() == bytes([steps]) * 300
    assert Path(directory, "deep", "empty").is_dir()
    return steps


def walk(config: dict[str, Any]) -> None:
    """Saves a dict with each of its four reports."""
    start = 0
    if (checkpoint := tune.get_checkpoint()) is not None:
        start = int(checkpoint.to_dict()["step"])
    for step in range(start + 1, 5):
        work()
        saved = tune.Checkpoint.from_dict(
            {"step": step, "weights": np.arange(step), "when": datetime.date(2024, 2, 29)}
        )
        tune.report({"score": value_of(config, step)}, checkpoint=saved)


def walk_files(config: dict[str, Any]) -> None:
    """Saves directories: handed over in even steps, lent in odd ones, not at all in the third; five reports."""
    start = 0
    if (checkpoint := tune.get_checkpoint()) is not None:
        with checkpoint.as_directory() as directory:
            start = _read(directory)
    for step in range(start + 1, 6):
        metrics = {"score": value_of(config, step), "loss": -value_of(config, step)}
        if step == 3:
            tune.report(metrics)
        elif step % 2:
            lent = Path(tune.get_trial_dir(), f"lent-{step}")
            lent.mkdir(exist_ok=True)
            if not any(lent.iterdir()):
                _write(str(lent), step)
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(lent))
        else:
            with tune.checkpoint_dir(step) as own:
                _write(own, step)
            tune.report(metrics)


def fails(config: dict[str, Any]) -> None:
    """ "once": at the third step of its first attempt; "always": at its second step; "never"."""
    start = 0
    if (checkpoint := tune.get_checkpoint()) is not None:
        start = int(checkpoint.to_dict()["step"])
    for step in range(start + 1, 5):
        if config["kind"] == "once" and step == 3 and start == 0:
            raise RuntimeError("fails once")
        if config["kind"] == "always" and step == 2:
            raise ValueError("fails always")
        tune.report({"score": value_of(config, step)}, checkpoint=tune.Checkpoint.from_dict({"step": step}))


def odd_results(config: dict[str, Any]) -> None:
    """Reports what a result may hold beside numbers."""
    start = 0
    if (checkpoint := tune.get_checkpoint()) is not None:
        start = int(checkpoint.to_dict()["step"])
    for step in range(start + 1, 5):
        tune.report(
            {
                "score": float(step), "nan": float("nan"), "inf": float("-inf"), "text": "naïve \u2603 \x1b[31m",
                "none": None, "flag": step % 2 == 0, "list": [1, [2.5, "three"]], "tuple": (1, 2), "large": 2**70,
                "nested": {"eval": {"auc": np.float32(0.5)}, "n": np.int64(step)}, "scalar": np.array(1.5),
                "when": datetime.timedelta(seconds=step),
            },
            checkpoint=tune.Checkpoint.from_dict({"step": step}),
        )  # fmt: skip


def checks_its_config(config: dict[str, Any]) -> None:
    """Fails unless its config is, value for value and type for type, what was given."""
    for name, value in odd_values().items():
        if name != "trial":
            assert alike(config[name], value), (name, config[name], value)
    walk({"x": config["x"]})


def checks_its_large_config(config: dict[str, Any]) -> None:
    """Fails unless what is large in its config is what was given."""
    for name, value in large_values().items():
        assert alike(config[name], value), name
    walk({"x": config["x"]})


def ranks(config: dict[str, Any]) -> None:
    """What each worker of a trainer runs."""
    start = 0
    if (checkpoint := train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as directory:
            start = int(Path(directory, "step-0").read_text())
    rank = train.get_context().get_world_rank()
    for step in range(start + 1, 5):
        place = Path(train.get_context().get_trial_dir(), f"rank-{rank}-{step}")
        place.mkdir(exist_ok=True)
        place.joinpath(f"step-{rank}").write_text(str(step))
        train.report({"score": value_of(config, step)}, checkpoint=train.Checkpoint.from_directory(place))


def seldom(config: dict[str, Any]) -> None:
    """Saves with every third of its seven reports."""
    start = 0
    if (checkpoint := tune.get_checkpoint()) is not None:
        start = int(checkpoint.to_dict()["step"])
    for step in range(start + 1, 8):
        saved = tune.Checkpoint.from_dict({"step": step}) if step % 3 == 0 else None
        tune.report({"score": value_of(config, step)}, checkpoint=saved)


def told_to_go(config: dict[str, Any]) -> None:
    """Is preempted once, as a batch system does it."""
    start = 0
    if (checkpoint := tune.get_checkpoint()) is not None:
        start = int(checkpoint.to_dict()["step"])
    for step in range(start + 1, 5):
        if start == 0 and step == 2:
            os.kill(os.getpid(), signal.SIGUSR1)
        tune.report({"score": value_of(config, step)}, checkpoint=tune.Checkpoint.from_dict({"step": step}))


def loses_its_keeper(config: dict[str, Any]) -> None:
    """The process that looks after it is killed once."""
    start = 0
    if (checkpoint := tune.get_checkpoint()) is not None:
        start = int(checkpoint.to_dict()["step"])
    for step in range(start + 1, 5):
        if start == 0 and step == 3:
            tune.get_checkpoint()  # which waits for the save before it
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
        tune.report({"score": value_of(config, step)}, checkpoint=tune.Checkpoint.from_dict({"step": step}))


def loses_a_save(config: dict[str, Any]) -> None:
    """Its second save does not reach the disk, where the environment says so."""
    start = 0
    if (checkpoint := tune.get_checkpoint()) is not None:
        start = int(checkpoint.to_dict()["step"])
    for step in range(start + 1, 5):
        with faulty() if os.environ.get(FAULTY) and step == 2 else contextlib.nullcontext():
            tune.report({"score": value_of(config, step)}, checkpoint=tune.Checkpoint.from_dict({"step": step}))


@contextlib.contextmanager
def faulty() -> Iterator[None]:
    from trainables.store import fs

    def refuses(*arguments: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    real, fs.fsync_file = fs.fsync_file, refuses
    try:
        yield
    finally:
        fs.fsync_file = real


def trainer() -> DataParallelTrainer:
    return DataParallelTrainer(
        ranks, scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.25})
    )
