"""How a run is put together: what is refused before anything is looked at, and what is closed when it is."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from trainables.errors import CheckpointCorruptError
from tuner.clock import VirtualClock
from tuner.driver import build
from tuner.error import (
    ExperimentExistsError,
    ResourceError,
    SerializationError,
    SettingError,
)
from tuner.executors import InlineExecutor, SimulatedExecutor
from tuner.spec import Spec


def counts(config: dict[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    start = checkpoint.to_dict()["n"] if checkpoint else 0
    tune.report({"n": start + 1}, checkpoint=tune.Checkpoint.from_dict({"n": start + 1}))


def run(place: Path, **settings: Any) -> tune.ExperimentAnalysis:
    arguments = {"name": "e", "storage_path": str(place), "executor": "inline", "verbose": 0, **settings}
    return tune.run(arguments.pop("trainable", counts), **arguments)


def made(place: Path) -> list[str]:
    return [path.name for path in place.iterdir()] if place.exists() else []


# --- restore= of a checkpoint ------------------------------------------------------------------------------------


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A checkpoint whose count is 1."""
    (trial,) = run(tmp_path / "old").trials
    assert trial.checkpoint is not None
    return Path(trial.checkpoint.path)


@pytest.mark.parametrize("given", ["text", "path", "checkpoint", "in memory", "a directory of the user's own"])
def test_every_trial_starts_from_a_checkpoint_that_is_given(given: str, old: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    tune.Checkpoint.from_dict({"n": 1}).to_directory(own)
    restore = {
        "text": str(old),
        "path": old,
        "checkpoint": tune.Checkpoint(old),
        "in memory": tune.Checkpoint.from_dict({"n": 1}),
        "a directory of the user's own": own,
    }[given]
    trials = run(tmp_path / "new", restore=restore, num_samples=2).trials
    assert [trial.last_result["n"] for trial in trials] == [2, 2]


@pytest.mark.parametrize(
    ("which", "problem"),
    [
        ("nothing", "there is no checkpoint at"),
        ("a file", "there is no checkpoint at"),
        ("empty", "is empty"),
        ("storage", "holds experiments; give one of them: e"),
        ("trial", "holds checkpoints; give one of them: checkpoint_000001"),
        ("trial without", "is the directory of a trial, which has no checkpoint"),
    ],
)
def test_what_is_no_checkpoint_is_refused_before_anything_is_made(
    which: str, problem: str, old: Path, tmp_path: Path
) -> None:
    for name in ("empty", "trial without"):
        (tmp_path / name).mkdir()
    (tmp_path / "a file").touch()
    (tmp_path / "trial without" / "trial.json").write_text("{}")
    restore = {"storage": old.parents[2], "trial": old.parent}.get(which, tmp_path / which)
    with pytest.raises(SettingError, match="restore=") as caught:
        run(tmp_path / "new", restore=restore)
    assert problem in str(caught.value) and str(restore) in str(caught.value)
    assert made(tmp_path / "new") == []


def test_a_damaged_checkpoint_is_refused(old: Path, tmp_path: Path) -> None:
    next(path for path in old.iterdir() if not path.name.startswith(".")).write_bytes(b"not what it was")
    with pytest.raises(CheckpointCorruptError):
        run(tmp_path / "new", restore=old)
    assert made(tmp_path / "new") == []


# --- what can be refused before anything is looked at ---------------------------------------------------------------


def test_resources_that_nothing_here_has_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ResourceError):
        run(tmp_path / "new", executor=SimulatedExecutor(counts, slots=2), resources_per_trial={"cpu": 3})
    assert made(tmp_path / "new") == []


def test_resources_by_config_are_checked_for_each_trial(tmp_path: Path) -> None:
    def model(config: dict[str, Any]) -> Any:
        yield 1.0, {"n": 1}

    with pytest.raises(ResourceError):
        run(
            tmp_path / "new", executor=SimulatedExecutor(model, slots=2), config={"cpu": tune.grid_search([1, 3])},
            resources_per_trial=lambda config: {"cpu": config["cpu"]},
        )  # fmt: skip


def test_overwrite_leaves_the_old_experiment_when_the_new_trainable_cannot_be_sent(tmp_path: Path) -> None:
    run(tmp_path)
    lock = threading.Lock()

    def unsendable(config: dict[str, Any]) -> None:
        with lock:
            tune.report({"n": 1})

    with pytest.raises(SerializationError):
        run(tmp_path, trainable=unsendable, overwrite=True, executor="local")
    assert len(tune.ExperimentAnalysis(tmp_path / "e").trials) == 1


# --- programs that run the scripts of others ------------------------------------------------------------------------


def test_a_change_holds_for_every_run_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_changes", [])
    seen: list[str | None] = []

    def twice(spec: Spec) -> Spec:
        seen.append(spec.name)
        return dataclasses.replace(spec, num_samples=2)

    build.change_every_run(twice)
    assert len(run(tmp_path, name="a").trials) == len(run(tmp_path, name="b").trials) == 2
    assert seen == ["a", "b"]


# --- two drivers in the same second ---------------------------------------------------------------------------------


class StandsStill(InlineExecutor):
    """A run without a name is called after the time, which is always the same here."""

    clock = VirtualClock()


def test_runs_without_a_name_of_one_second_take_the_next_free_one(tmp_path: Path) -> None:
    for _ in range(3):
        run(tmp_path, name=None, executor=StandsStill())
    assert len(made(tmp_path)) == 3


def test_a_name_that_was_given_is_not_exchanged_for_a_free_one(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(ExperimentExistsError):
        run(tmp_path)
    assert made(tmp_path) == ["e"]
