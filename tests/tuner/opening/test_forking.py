"""Forks into an experiment of their own: from a directory, and from a bucket on a machine that has nothing else."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.replicated import answer, bucket, cache, server
from trainables.errors import CheckpointCorruptError, CheckpointNotFoundError, TransferError
from trainables.transfer.open import open_backend
from tuner.error import ExperimentExistsError, OrderError, SettingError

__all__ = ["bucket", "cache", "server"]


def train(config: dict[str, Any]) -> None:
    """What it draws goes on from the checkpoint."""
    generator, count, total = random.Random(7), 0, 0.0
    if (checkpoint := tune.get_checkpoint()) is not None:
        state = checkpoint.to_dict()
        count, total = state["count"], state["total"]
        kind, numbers, rest = state["generator"]
        generator.setstate((kind, tuple(numbers), rest))
    while count < config["until"]:
        count, total = count + 1, total + config["lr"] * generator.random()
        state = {"count": count, "total": total, "generator": generator.getstate()}
        tune.report({"total": total}, checkpoint=tune.Checkpoint.from_dict(state))


def run(storage: Path, name: str, place: str | None = None, until: int = 3) -> tune.ExperimentAnalysis:
    return tune.run(
        train,
        name=name,
        storage_path=storage,
        config={"lr": 0.5, "until": until},
        sync_config=tune.SyncConfig(upload_dir=place),
        metric="total",
        mode="min",
        seed=1,
        resume="AUTO",
        executor="inline",
        verbose=0,
    )


def test_a_fork_of_a_fork_in_a_bucket_is_bit_for_bit_what_training_on_gives(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    straight = run(tmp_path / "straight", "e", until=9).trials[0]
    run(tmp_path / "first", "e", bucket)
    place = f"{bucket}/e"
    for number, (checkpoint, until) in enumerate([("0@3", 6), ("1@6", 9)]):
        machine = tmp_path / f"machine-{number}"
        monkeypatch.setenv("TUNE_RESULT_DIR", str(machine))
        monkeypatch.setenv("TUNE_CACHE_DIR", str(tmp_path / f"cache-{number}"))
        shutil.rmtree(tmp_path / "first", ignore_errors=True)
        order = tune.open_experiment(place).fork(checkpoint, {"until": until}, into=f"g{number}")
        assert order.state == "waiting"
        analysis = run(machine, f"g{number}", bucket)
        assert order.state == "done"
        trunk, fork = analysis.trials
        assert (trunk.status, fork.status, fork.iteration) == ("TERMINATED", "TERMINATED", until)
        assert trunk.iteration == until - 3 and fork.fork is not None and fork.fork.changed["until"][1] == until
        place = f"{bucket}/g{number}"
    assert fork.checkpoint is not None and straight.checkpoint is not None
    assert fork.checkpoint.to_dict() == straight.checkpoint.to_dict()
    assert fork.last_result["total"] == straight.last_result["total"]
    assert f"forked from {bucket}/g0: " in answer(capsys, "show", place)
    assert "with until=9" in answer(capsys, "log", place)


def test_a_damaged_checkpoint_in_a_bucket_is_refused_and_nothing_is_made(bucket: str, tmp_path: Path) -> None:
    run(tmp_path / "first", "e", bucket)
    backend = open_backend(bucket)
    keys = [entry.key for entry in backend.list("e") if "checkpoint_000003/" in entry.key]
    (data,) = (key for key in keys if not key.endswith(".manifest.json"))
    backend.put(data, b"x" * len(backend.read(data)))
    backend.close()
    with pytest.raises(TransferError, match="is not what was published"):
        tune.open_experiment(f"{bucket}/e").fork("0@3", {"until": 6}, into=str(tmp_path / "machine" / "g"))
    assert not (tmp_path / "machine").exists()
    tune.open_experiment(f"{bucket}/e").fork("0@2", {"until": 6}, into=str(tmp_path / "machine" / "g"))
    assert run(tmp_path / "machine", "g").trials[1].iteration == 6


def test_beside_the_other_one_and_what_is_refused(tmp_path: Path) -> None:
    run(tmp_path, "e")
    experiment = tune.open_experiment(tmp_path / "e")
    experiment.tag("0@2", "good")
    for checkpoint, config, into, error in (
        ("0@9", {}, "g", CheckpointNotFoundError),
        ("a/b", {}, "g", OrderError),
        ("0@2", {"until": object()}, "g", OrderError),
        ("0@2", {}, "e", ExperimentExistsError),
        ("0@2", {}, ".g", SettingError),
    ):
        with pytest.raises(error):
            experiment.fork(checkpoint, config, into=into)
    assert {path.name for path in tmp_path.iterdir()} - {".tmp"} == {"e"}
    order = experiment.fork("good", {"until": 4}, into="g", order_id="fork-it-now")
    assert [
        len(tune.ExperimentAnalysis(str(tmp_path / "g")).trial_dataframes[trial.path])
        for trial in [tune.ExperimentAnalysis(str(tmp_path / "g")).trials[0]]
    ] == [2]
    damaged = next((tmp_path / "e").glob("*/checkpoint_000003"))
    next(path for path in damaged.iterdir() if path.name != ".manifest.json").write_bytes(b"no")
    with pytest.raises(CheckpointCorruptError):
        experiment.fork("0@3", into="h")
    trials = run(tmp_path, "g").trials
    assert order.state == "done" and [trial.iteration for trial in trials] == [2, 4]
    assert len(trials) == 2, "the searcher makes none"
