"""The small experiments that are killed everywhere: every way to save, to keep, to fail and to end."""

from __future__ import annotations

import atexit
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import tuner as tune
from trainables import Checkpoint
from tuner.schedulers import ASHAScheduler

SEED = 7


def value_of(config: dict[str, Any], epoch: int) -> float:
    """What a trial reports: a pure function, so that an interrupted run can be held against an uninterrupted one."""
    return random.Random(f"{config['x']}:{epoch}").random()


def check_same(epoch: int) -> None:
    """What a trial is given is the checkpoint that its name says."""
    checkpoint = tune.get_checkpoint()
    assert checkpoint is not None
    number = int(Path(checkpoint.path).name.split("_")[1].split("-")[0].split(".")[0])
    assert number == epoch, (checkpoint.path, epoch)


def saves_dicts(config: dict[str, Any]) -> None:
    start = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        start = checkpoint.to_dict()["epoch"]
        check_same(start)
    for epoch in range(start + 1, 4):
        tune.report({"v": value_of(config, epoch)}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))


def saves_directories(config: dict[str, Any]) -> None:
    """Handed over in even epochs, lent in odd ones, not at all in the third."""
    start = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            start = int(Path(directory, "epoch").read_text())
            assert Path(directory, "deep", "weights").read_bytes() == bytes([start]) * 100
        check_same(start)
    for epoch in range(start + 1, 6):
        metrics = {"v": value_of(config, epoch)}
        if epoch == 3:
            tune.report(metrics)
        elif epoch % 2:
            with tempfile.TemporaryDirectory() as lent:
                _write(lent, epoch)
                tune.report(metrics, checkpoint=Checkpoint.from_directory(lent))
        else:
            with tune.checkpoint_dir(epoch) as own:
                _write(own, epoch)
            tune.report(metrics)


def _write(directory: str, epoch: int) -> None:
    Path(directory, "epoch").write_text(str(epoch))
    os.mkdir(Path(directory, "deep"))
    Path(directory, "deep", "weights").write_bytes(bytes([epoch]) * 100)


def fails(config: dict[str, Any]) -> None:
    """The first trial fails once, the second always, the third never."""
    start = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        start = checkpoint.to_dict()["epoch"]
        check_same(start)
    for epoch in range(start + 1, 4):
        if config["kind"] == "once" and epoch == 3 and start == 0:
            raise RuntimeError("fails once")
        if config["kind"] == "always" and epoch == 2:
            raise RuntimeError("fails always")
        tune.report({"v": value_of(config, epoch)}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))


class Stepper(tune.Trainable):
    """Saves every second iteration and at its end."""

    def setup(self, config: dict[str, Any]) -> None:
        self.epoch = 0

    def step(self) -> dict[str, Any]:
        self.epoch += 1
        return {"v": value_of(self.config, self.epoch)}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "epoch").write_text(str(self.epoch))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        self.epoch = int(Path(checkpoint_dir, "epoch").read_text())
        assert self.epoch == self.iteration


@dataclass(frozen=True)
class Scenario:
    """One experiment, as a script would run it again and again."""

    name: str
    trainable: Any
    trials: int
    settings: dict[str, Any]
    saved: tuple[int, ...]
    """The iterations at which a trial saves."""
    config: Callable[[], dict[str, Any]] = lambda: {"x": tune.uniform(0, 1)}
    more: Callable[[], dict[str, Any]] = dict
    """Settings that are made anew for each run."""
    compacts: bool = False
    """The journal is compacted all the time, and what that replaces is removed at once."""
    begins: int = 0
    """The iteration that an earlier experiment's trials have come to, with which these begin."""
    environment: dict[str, str] = field(default_factory=dict)
    sync: dict[str, Any] = field(default_factory=dict)
    """More settings of its replica, where it has one."""

    def run(self, storage: Path, **more: Any) -> tune.ExperimentAnalysis:
        settings = {"resume": "AUTO", "executor": "inline", **self.settings, **self.more(), **more}
        return tune.run(
            self.trainable,
            name="e",
            config=self.config(),
            storage_path=storage,
            seed=SEED,
            verbose=0,
            raise_on_failed_trial=False,
            **settings,
        )


@cache
def _earlier() -> str:
    """An experiment that trained the same configs, not as far."""
    storage = Path(tempfile.mkdtemp(prefix="earlier-", dir=os.environ.get("TMPDIR", "/tmp")))  # for all tests
    atexit.register(shutil.rmtree, storage)
    settings = {"num_samples": 2, "stop": {"training_iteration": 2}}
    Scenario("earlier", saves_dicts, trials=2, settings=settings, saved=(1, 2)).run(storage)
    return str(storage / "e")


SCENARIOS = [
    Scenario(
        "keep_one",
        saves_dicts,
        trials=2,
        settings={"num_samples": 2, "keep_checkpoints_num": 1},
        saved=(1, 2, 3),
    ),
    Scenario(
        "keep_best",
        saves_directories,
        trials=2,
        settings={
            "num_samples": 2,
            "keep_checkpoints_num": 2,
            "checkpoint_score_attr": "max-v",
            "metric": "v",
            "mode": "max",
        },
        saved=(1, 2, 4, 5),
    ),
    Scenario(
        "class",
        Stepper,
        trials=2,
        settings={
            "num_samples": 2,
            "keep_checkpoints_num": 1,
            "checkpoint_score_attr": "min-v",
            "checkpoint_freq": 2,
            "checkpoint_at_end": True,
            "stop": {"training_iteration": 5},
        },
        saved=(2, 4, 5),
    ),
    Scenario(
        "failing",
        fails,
        trials=3,
        settings={"max_failures": 1, "keep_checkpoints_num": 2},
        config=lambda: {"x": tune.uniform(0, 1), "kind": tune.grid_search(["once", "always", "never"])},
        saved=(1, 2, 3),
    ),
    Scenario(
        "compacting",
        saves_dicts,
        trials=4,
        settings={"num_samples": 4, "keep_checkpoints_num": 1, "metric": "v", "mode": "max"},
        more=lambda: {"scheduler": ASHAScheduler(max_t=3, grace_period=1, reduction_factor=2)},
        saved=(1, 2, 3),
        compacts=True,
    ),
    Scenario(
        "reusing",
        saves_dicts,
        trials=2,
        settings={"num_samples": 2},
        more=lambda: {"reuse": _earlier()},
        saved=(2, 3),
        begins=2,
    ),
]
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
