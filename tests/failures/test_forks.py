"""Forks in real runs: one trunk with many ends, counted in steps and bytes, here and in a replica, bit for bit."""

from __future__ import annotations

import json
import pickle
import random
import shutil
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

import tuner as tune

EPOCHS, TAILS, LENGTH = 30, 8, 5
steps: list[tuple[str, int]] = []


def train(config: dict[str, Any]) -> None:
    """Draws with a generator whose state is in the checkpoint, and once with the global one that the run seeds."""
    weights, begun, generator = [0.0], 0, random.Random(7)
    checkpoint = tune.get_checkpoint()
    if checkpoint is not None:
        state = checkpoint.to_dict()
        weights, begun = state["weights"], state["epoch"]
        kind, numbers, rest = state["generator"]
        generator.setstate((kind, tuple(numbers), rest))
    noise = random.random()
    for epoch in range(begun + 1, config["epochs"] + 1):
        steps.append((tune.get_context().get_trial_id(), epoch))
        weights = [*weights, weights[-1] + config["lr"] * generator.random()]
        saved = None
        if epoch % 10 == 0 or epoch == config["epochs"]:
            state = {"weights": weights, "epoch": epoch, "generator": generator.getstate(), "data": "x" * 20_000}
            saved = tune.Checkpoint.from_dict(state)
        tune.report({"loss": weights[-1], "noise": noise, "epoch": epoch}, checkpoint=saved)


def run(storage: Path, epochs: int, **more: Any) -> tune.ExperimentAnalysis:
    return tune.run(
        train,
        name="e",
        storage_path=str(storage),
        executor="inline",
        config={"lr": 0.5, "epochs": epochs},
        metric="loss",
        mode="min",
        seed=3,
        verbose=0,
        resume="AUTO",
        **more,
    )


class Forked:
    """A finished trunk, of which eight ends were forked, and a fork of one of these."""

    def __init__(self, place: Path) -> None:
        steps.clear()
        self.storage, self.replica = place / "here", place / "replica"
        sync = tune.SyncConfig(upload_dir=str(self.replica))
        run(self.storage, EPOCHS, sync_config=sync)
        experiment = tune.open_experiment(self.storage / "e")
        for number in range(TAILS):
            changes = {"epochs": EPOCHS + LENGTH, "lr": 0.5 if number == 0 else 0.1 / number}
            experiment.fork(f"0@{EPOCHS}", changes, if_dead="wait", order_id=f"tail-{number:04d}")
        self.analysis = run(self.storage, EPOCHS, sync_config=sync)
        self.steps = list(steps)
        self.bytes = {where: stored(where / "e") for where in (self.storage, self.replica)}
        experiment.fork(f"1@{EPOCHS + LENGTH}", {"epochs": EPOCHS + 2 * LENGTH}, if_dead="wait")
        self.again = run(self.storage, EPOCHS, sync_config=sync)
        self.steps_then = len(steps)


def stored(experiment: Path) -> tuple[int, int]:
    """Bytes of all checkpoints' files, and of those among them that are not alike."""
    files = [file for file in experiment.glob("*/checkpoint_*/*") if file.is_file() and file.name != ".manifest.json"]
    distinct = {blake2b(file.read_bytes()).digest(): file.stat().st_size for file in files}
    return sum(file.stat().st_size for file in files), sum(distinct.values())


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forked]:
    yield Forked(tmp_path_factory.mktemp("forked"))


def test_the_trunk_is_trained_and_stored_once(forked: Forked) -> None:
    assert len(forked.steps) == EPOCHS + TAILS * LENGTH == 70
    for where, (all_, distinct) in forked.bytes.items():
        assert 11 * 20_000 < all_ <= 1.1 * distinct, where  # three of the trunk, one of each tail
    assert forked.bytes[forked.storage] == forked.bytes[forked.replica]


def test_a_fork_is_bit_for_bit_the_trunk_trained_on(forked: Forked, tmp_path: Path) -> None:
    straight = run(tmp_path, EPOCHS + LENGTH).trials[0]
    fork = forked.analysis.trials[1]
    assert fork.checkpoint is not None and straight.checkpoint is not None
    assert fork.checkpoint.to_dict()["weights"] == straight.checkpoint.to_dict()["weights"]
    assert fork.last_result["training_iteration"] == straight.last_result["training_iteration"] == EPOCHS + LENGTH
    whole = tmp_path / "resumed"
    run(whole, EPOCHS)
    other = tune.open_experiment(whole / "e")
    other.fork(f"0@{EPOCHS}", {"epochs": EPOCHS + LENGTH}, if_dead="wait")
    assert run(whole, EPOCHS).trials[1].last_result["noise"] == fork.last_result["noise"]  # what the run seeds


def test_a_fork_of_a_fork_goes_on_from_there(forked: Forked) -> None:
    last = forked.again.trials[-1]
    assert last.fork is not None and last.fork.changed == {"epochs": (35, 40)} and last.iteration == 40
    assert last.config == {"lr": 0.5, "epochs": 40} and forked.steps_then == 75


def test_frames_show_the_whole_curve(forked: Forked) -> None:
    frames = forked.again.trial_dataframes
    for trial in forked.again.trials:
        rows = frames[trial.path]
        assert list(rows["epoch"]) == list(range(1, trial.iteration + 1))
    trunk, tail, last = (frames[forked.again.trials[number].path] for number in (0, 2, -1))
    assert list(tail["loss"][:30]) == list(trunk["loss"]) and list(last["loss"][:30]) == list(trunk["loss"])
    results = tune.ResultGrid(forked.again)
    assert list(results[-1].metrics_dataframe["epoch"]) == list(range(1, 41))
    assert list(pickle.loads(pickle.dumps(results[-1])).metrics_dataframe["epoch"]) == list(range(1, 41))
    own = [json.loads(line) for line in Path(forked.again.trials[-1].path, "result.json").read_text().splitlines()]
    assert [row["epoch"] for row in own] == [36, 37, 38, 39, 40]  # not told again


def test_a_fork_of_a_fork_from_a_replica_on_an_empty_machine(tmp_path: Path) -> None:
    """Its start is fetched and hashed; what it gives is what one run without forks gives."""
    storage, sync = tmp_path / "here", tune.SyncConfig(upload_dir=str(tmp_path / "replica"))
    run(storage, EPOCHS, sync_config=sync)
    for start, epochs in ((f"0@{EPOCHS}", EPOCHS + LENGTH), (f"1@{EPOCHS + LENGTH}", EPOCHS + 2 * LENGTH)):
        shutil.rmtree(storage)
        run(storage, EPOCHS, sync_config=sync)  # fetched: nothing is left to run
        assert not list(storage.glob("e/*/checkpoint_*"))
        tune.open_experiment(storage / "e").fork(start, {"epochs": epochs}, if_dead="wait")
        analysis = run(storage, EPOCHS, sync_config=sync)
    straight = run(tmp_path / "straight", EPOCHS + 2 * LENGTH).trials[0]
    last = analysis.trials[2]
    assert last.checkpoint is not None and straight.checkpoint is not None
    assert last.checkpoint.to_dict()["weights"] == straight.checkpoint.to_dict()["weights"]
    assert list(analysis.trial_dataframes[last.path]["epoch"]) == list(range(1, EPOCHS + 2 * LENGTH + 1))
