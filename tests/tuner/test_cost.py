"""Cost is flat (design rule R9): counted in function calls of the loop's thread, which do not depend on the machine."""

from __future__ import annotations

import cProfile
import itertools
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from trainables.store import fs
from tuner.executors import SimulatedExecutor
from tuner.schedulers import ASHAScheduler, PopulationBasedTraining

COUNT, WINDOW, RESULTS = 400, 100, 3


class Counting(tune.Callback):
    """Counts the calls of 100 trials, after so many and after so many."""

    changes_results = False

    def __init__(self, early: int = 50, late: int = COUNT - WINDOW - 10) -> None:
        self.profiles = {early: cProfile.Profile(), late: cProfile.Profile()}
        self.done = 0

    def on_trial_complete(self, **info: Any) -> None:
        if self.done - WINDOW in self.profiles:
            self.profiles[self.done - WINDOW].disable()
        self.done += 1
        if self.done in self.profiles:
            self.profiles[self.done].enable()

    @property
    def calls(self) -> list[int]:
        return [sum(entry.callcount for entry in profile.getstats()) for profile in self.profiles.values()]


@pytest.mark.parametrize("copies", [False, True])
def test_f23_a_result_costs_the_same_work_however_many_trials_there_were(copies: bool, tmp_path: Path) -> None:
    counting = Counting()
    tune.run(
        lambda config: None,
        config={"x": tune.uniform(0, 1)},
        metric="loss",
        mode="min",
        num_samples=COUNT,
        storage_path=str(tmp_path / "results"),
        verbose=0,
        callbacks=[counting],
        executor=SimulatedExecutor(lambda config: [(1.0, {"loss": config["x"]})] * RESULTS, slots=4),
        sync_config=tune.SyncConfig(upload_dir=str(tmp_path / "copies") if copies else None),
        seed=1,
    )
    early, late = counting.calls
    # Copies end beside the loop: how often it turns for them is a matter of time. A cost that grows grows sixfold.
    assert early > 100 * WINDOW and late < (1.2 if copies else 1.02) * early


def test_f23_a_result_under_asha_costs_the_same_work_at_trial_2000_as_at_trial_200(tmp_path: Path) -> None:
    """No files per trial. Later trials are the better ones, so that none is stopped before its end."""
    counting, numbers = Counting(200, 2_000), itertools.count(1)

    def model(config: dict[str, Any]) -> list[tuple[float, dict[str, float]]]:
        height = 1 / next(numbers)
        return [(1.0, {"loss": height / (step + 1)}) for step in range(RESULTS)]

    analysis = tune.run(
        lambda config: None,
        config={"x": tune.uniform(0, 1)},
        metric="loss",
        mode="min",
        num_samples=2_110,
        scheduler=ASHAScheduler(max_t=RESULTS, reduction_factor=2),
        storage_path=str(tmp_path),
        verbose=0,
        callbacks=[counting],
        executor=SimulatedExecutor(model, slots=4, directories=False),
        seed=1,
    )
    early, late = counting.calls
    assert all(trial.iteration == RESULTS for trial in analysis.trials)
    assert early > 100 * WINDOW and late < 1.02 * early


class Member(tune.Trainable):
    """Its checkpoints are files; who it was restored from is seen in its result."""

    def setup(self, config: dict[str, Any]) -> None:
        self.weights = b"0" * 10_000

    def step(self) -> dict[str, Any]:
        return {"score": self.config["rate"]}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "weights").write_bytes(self.weights)

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        self.weights = Path(checkpoint_dir, "weights").read_bytes()


def test_an_exploit_copies_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    copy = fs.copy_file

    def counted(source: fs.PathLike, target: fs.PathLike) -> int:
        copied.append(copy(source, target))
        return copied[-1]

    monkeypatch.setattr(fs, "copy_file", counted)
    analysis = tune.run(
        Member,
        config={"rate": tune.uniform(0, 1)},
        num_samples=6,
        metric="score",
        mode="max",
        scheduler=PopulationBasedTraining(
            time_attr="training_iteration",
            perturbation_interval=2,
            hyperparam_mutations={"rate": tune.uniform(0, 1)},
            synch=True,
        ),
        stop={"training_iteration": 12},
        keep_checkpoints_num=1,
        storage_path=str(tmp_path),
        verbose=0,
        executor="inline",
        seed=1,
    )
    assert sum(len(trial.clones) for trial in analysis.trials) >= 5
    assert copied == []
    fs.copy_file(__file__, tmp_path / "copy")
    assert len(copied) == 1  # it would have been seen
