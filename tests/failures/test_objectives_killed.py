"""ASHA of several metrics, killed between any two facts: it decides as if it had not been."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.failures.checkpoint_faults import killed_at_fact
from tuner.experiment import journal_writer
from tuner.schedulers import ASHAScheduler

TRIALS = 14


class Trains(tune.Trainable):
    """The more it gains, the longer it takes; the first trials are not the best ones."""

    def setup(self, config: dict[str, Any]) -> None:
        self.steps = 0

    def step(self) -> dict[str, Any]:
        self.steps += 1
        return {"loss": self.config["x"] / self.steps, "size": 1 / self.config["x"] + self.config["n"]}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "steps").write_text(str(self.steps))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        self.steps = int(Path(checkpoint_dir, "steps").read_text())


def searched(path: Path, kind: str) -> Any:
    return tune.run(
        Trains, config={"x": tune.uniform(0.1, 1), "n": tune.randint(0, 3)}, storage_path=path, name="e",
        num_samples=TRIALS, metric=["loss", "size"], mode=["min", "min"], seed=3, resume="AUTO", executor="inline",
        scheduler=ASHAScheduler(max_t=9, reduction_factor=2, type=kind), resources_per_trial={"cpu": 0.25},
        checkpoint_freq=1, stop={"training_iteration": 9}, max_concurrent_trials=1, verbose=0,
    )  # fmt: skip


def lives(analysis: Any) -> list[tuple[Any, ...]]:
    """Of each trial what it was and came to, and who decided that, by what."""
    return [
        (trial.config, trial.status, trial.iteration, trial.last_result["loss"], str(trial.end_reason))
        for trial in analysis.trials
    ]


def killed_and_whole(path: Path, patch: pytest.MonkeyPatch, kind: str, seed: object) -> None:
    whole = searched(path / "whole", kind)
    assert len({trial.iteration for trial in whole.trials}) > 2, "it ended some early"
    patch.setattr(journal_writer, "COMPACT_BYTES", 4000)  # what is gone on from is a snapshot and what came after it
    draw, kills = random.Random(f"{kind} {seed}"), 0
    for _ in range(6):
        kills += killed_at_fact(draw.randint(2, 30), lambda: searched(path / "cut", kind))
    cut = searched(path / "cut", kind)
    assert kills > 2
    assert lives(cut) == lives(whole)
    assert [trial.trial_id for trial in cut.best_trials] and (
        [trial.index for trial in cut.best_trials] == [trial.index for trial in whole.best_trials]
    )
    for trial in cut.trials:
        assert any(name.startswith("checkpoint") for name in os.listdir(trial.path))


@pytest.mark.parametrize("kind", ["stopping", "promotion"])
def test_f14_f51_killed_between_any_two_facts_asha_of_several_metrics_decides_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    killed_and_whole(tmp_path, monkeypatch, kind, "")


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["stopping", "promotion"])
@pytest.mark.parametrize("seed", range(40))
def test_f14_f51_killed_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int) -> None:
    killed_and_whole(tmp_path, monkeypatch, kind, seed)
