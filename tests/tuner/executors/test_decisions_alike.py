"""What is decided of trials is the same on virtual time as with real processes, given the same results."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tuner.executors import SimulatedExecutor, SimulatedSave
from tuner.executors.base import Executor
from tuner.schedulers import (
    ASHAScheduler,
    FreezeThawScheduler,
    HyperBandScheduler,
    PopulationBasedTraining,
    TrialScheduler,
)

EPOCHS = 9


def loss(config: dict[str, Any], epoch: int) -> float:
    """It falls to where the rate takes it, with noise; of one config always alike."""
    drawn = random.Random(f"{config['rate']} {epoch}").random()
    return float(abs(config["rate"] - 0.3) + 1.0 / epoch + 0.3 * drawn)


class Falls(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.epoch = 0

    def step(self) -> dict[str, Any]:
        self.epoch += 1
        return {"loss": loss(self.config, self.epoch)}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "epoch").write_text(str(self.epoch))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        self.epoch = int(Path(checkpoint_dir, "epoch").read_text())

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.config, self.epoch = new_config, 0
        return True


def simulated() -> Executor:
    return SimulatedExecutor(
        lambda config: [(1.0, {"loss": loss(config, epoch)}) for epoch in range(1, EPOCHS + 1)],
        save=lambda config: SimulatedSave(bytes=100, save_s=0.5, load_s=0.5),
    )


def decided(scheduler: TrialScheduler, executor: Executor | None, storage: Path) -> list[tuple[Any, ...]]:
    """Of each trial: its config, how far it came, why it ended, and whose checkpoints it went on from."""
    trials = tune.run(
        Falls,
        name="e",
        storage_path=storage,
        config={"rate": tune.uniform(0, 1)},
        num_samples=9,
        metric="loss",
        mode="min",
        stop={"training_iteration": EPOCHS},
        scheduler=scheduler,
        max_concurrent_trials=1,
        reuse_actors=True,
        executor=executor,
        seed=3,
        verbose=0,
    ).trials
    number = {trial.trial_id: trial.index for trial in trials}
    return [
        (
            trial.config,
            trial.iteration,
            trial.end_reason,
            [(clone.iteration, number[clone.donor.trial_id], clone.donor.iteration) for clone in trial.clones],
            [(rest.why, rest.reached, rest.iteration) for rest in trial.rests],
        )
        for trial in trials
    ]


@pytest.mark.parametrize(
    "made",
    [
        lambda: ASHAScheduler(max_t=EPOCHS, grace_period=1, reduction_factor=3),
        lambda: HyperBandScheduler(max_t=EPOCHS),
        lambda: FreezeThawScheduler(max_t=EPOCHS, max_paused=6),
        lambda: PopulationBasedTraining(
            time_attr="training_iteration",
            perturbation_interval=3,
            synch=True,
            hyperparam_mutations={"rate": tune.uniform(0, 1)},
            seed=5,
        ),
    ],
    ids=["asha", "hyperband", "freeze_thaw", "pbt"],
)
def test_stops_pauses_and_clones_are_those_of_real_processes(
    made: Callable[[], TrialScheduler], tmp_path: Path
) -> None:
    virtual = decided(made(), simulated(), tmp_path / "virtual")
    real = decided(made(), None, tmp_path / "real")
    assert virtual == real
    assert len({trial[1] for trial in real}) > 1 or any(trial[3] for trial in real), "something was decided"
