"""Simulated trials that save: virtual checkpoints, what they cost, and what retention makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tuner.error import SettingError
from tuner.executors import SimulatedExecutor, SimulatedSave
from tuner.schedulers import PB2, ASHAScheduler, HyperBandScheduler, PopulationBasedTraining, TrialScheduler

EPOCHS = 9
SAVE = SimulatedSave(bytes=1000, save_s=0.5, load_s=0.25)


def curve(config: dict[str, Any]) -> Iterator[tuple[float, dict[str, float]]]:
    for epoch in range(1, EPOCHS + 1):
        yield 1.0, {"loss": config["x"] + 1 / epoch}


def train(config: dict[str, Any]) -> None:
    """Never runs: the model stands for it."""


def simulated(path: Path, *, slots: int = 1, losses: Any = (), nodes: int = 1, **settings: Any) -> Any:
    executor = SimulatedExecutor(curve, save=lambda config: SAVE, slots=slots, losses=losses, nodes=nodes)
    given = {"config": {"x": tune.grid_search([0.0])}, "metric": "loss", "mode": "min", "seed": 1, "verbose": 0}
    return tune.run(train, name="e", storage_path=str(path), executor=executor, **{**given, **settings}), executor.clock


def checkpoints(trial: Any) -> list[int]:
    return [record.iteration for record in trial.checkpoints]


@pytest.mark.parametrize(
    ("settings", "kept", "saves"),
    [
        ({}, [], 0),
        ({"checkpoint_at_end": True}, [9], 1),
        ({"checkpoint_freq": 4}, [4, 8], 2),
        ({"checkpoint_freq": 2, "checkpoint_at_end": True, "keep_checkpoints_num": 2}, [8, 9], 5),
        ({"checkpoint_freq": 2, "keep_checkpoints_num": 1, "checkpoint_score_attr": "loss"}, [2, 8], 4),
        ({"checkpoint_freq": 1, "checkpoint_budget": 2500}, [8, 9], 9),
    ],
)
def test_a_save_costs_what_the_model_says_and_retention_decides_as_ever(
    tmp_path: Path, settings: dict[str, Any], kept: list[int], saves: int
) -> None:
    analysis, clock = simulated(tmp_path, **settings)
    [trial] = analysis.trials
    assert (checkpoints(trial), clock.monotonic()) == (kept, EPOCHS + saves * SAVE.save_s)
    assert trial.last_result["time_total_s"] == EPOCHS  # to save is no training
    assert not list(tmp_path.glob("e/*/checkpoint*"))


def test_a_trial_that_paused_goes_on_from_its_checkpoint_and_loading_takes_its_time(tmp_path: Path) -> None:
    asha = ASHAScheduler(max_t=EPOCHS, grace_period=1, reduction_factor=3, type="promotion")
    analysis, clock = simulated(tmp_path, config={"x": tune.grid_search([0.2, 0.1, 0.0])}, scheduler=asha)
    assert [trial.iteration for trial in analysis.trials] == [1, 1, 9]
    assert [trial.attempt for trial in analysis.trials] == [1, 1, 2]  # the last rung's promotion needs no pause
    assert clock.monotonic() == pytest.approx(11 + sum(trial.saves for trial in analysis.trials) * 0.5 + 0.25)


PERTURBED: dict[str, Any] = {"time_attr": "training_iteration", "perturbation_interval": 2, "seed": 3}


@pytest.mark.parametrize(
    "scheduler",
    [
        lambda: ASHAScheduler(max_t=EPOCHS, reduction_factor=3, type="promotion"),
        lambda: HyperBandScheduler(max_t=EPOCHS),
        lambda: PopulationBasedTraining(**PERTURBED, hyperparam_mutations={"x": tune.uniform(0, 1)}),
        lambda: PopulationBasedTraining(**PERTURBED, hyperparam_mutations={"x": tune.uniform(0, 1)}, synch=True),
        lambda: PB2(**PERTURBED, hyperparam_bounds={"x": [0.0, 1.0]}),
    ],
    ids=["promotion", "hyperband", "pbt", "synchronous pbt", "pb2"],
)
def test_every_scheduler_that_pauses_or_clones_runs_and_twice_alike(tmp_path: Path, scheduler: Any) -> None:
    def run(place: str) -> Any:
        made: TrialScheduler = scheduler()
        space = {"x": tune.uniform(0, 1)}
        analysis, clock = simulated(tmp_path / place, slots=2, config=space, num_samples=8, scheduler=made)
        assert {trial.status for trial in analysis.trials} == {"TERMINATED"}
        assert max(trial.iteration for trial in analysis.trials) == EPOCHS
        seen = [(trial.config, trial.attempt, trial.iteration, trial.last_result["loss"]) for trial in analysis.trials]
        return seen, clock.monotonic()

    assert run("first") == run("second")


def test_a_clone_goes_on_at_its_own_iteration(tmp_path: Path) -> None:
    pbt = PopulationBasedTraining(**PERTURBED, hyperparam_mutations={"x": [0.0, 0.5, 1.0]})
    analysis, _ = simulated(tmp_path, slots=4, config={"x": tune.grid_search([0.0, 0.5, 0.5, 1.0])}, scheduler=pbt)
    assert any(trial.clones for trial in analysis.trials)
    for trial in analysis.trials:
        assert trial.last_result["loss"] == pytest.approx(trial.config["x"] + 1 / EPOCHS)
        assert trial.iteration == EPOCHS


def test_a_lost_node_takes_only_what_was_being_saved(tmp_path: Path) -> None:
    losses = [(4.75, 1)]  # the save of iteration 4 is under way: 2 + 0.5 + 2 + 0.25
    analysis, clock = simulated(tmp_path, nodes=2, losses=losses, checkpoint_freq=2)
    [trial] = analysis.trials
    assert (trial.iteration, trial.attempt, checkpoints(trial)) == (9, 2, [2, 4, 6, 8])
    assert clock.monotonic() == 4.75 + 0.25 + 7 + 3 * 0.5


def test_a_simulated_trial_saves_when_it_pays(tmp_path: Path) -> None:
    analysis, _ = simulated(tmp_path, checkpoint_freq="auto")
    assert checkpoints(analysis.trials[0]) == [1], "then what a save takes is known, and nine seconds are not worth it"
    losses = [(200.0 * number, 10 - number) for number in range(1, 9)]
    executor = SimulatedExecutor(
        lambda config: [(1.0, {"loss": 0.0})] * 1500, save=lambda config: SAVE, nodes=10, losses=losses
    )
    [trial] = tune.run(
        train, storage_path=str(tmp_path / "lossy"), executor=executor, checkpoint_freq="auto", verbose=0
    ).trials
    gaps = [b - a for a, b in zip(checkpoints(trial), checkpoints(trial)[1:], strict=False)]
    assert trial.attempt == len(losses) + 1 and trial.iteration == 1500
    assert max(gaps[:2]) >= 20 and 8 <= min(gaps) and max(gaps[-20:]) <= 20  # sqrt(2 * 0.5 * 200): 14 s


def test_a_spent_budget_of_time_saves_and_a_resume_goes_on_from_there(tmp_path: Path) -> None:
    first, clock = simulated(tmp_path, time_budget_s=3.5)
    [trial] = first.trials
    assert (trial.status, trial.iteration, checkpoints(trial), clock.monotonic()) == ("PAUSED", 4, [4], 4.5)
    again, clock = simulated(tmp_path, resume=True)
    [trial] = again.trials
    assert (trial.status, trial.iteration, clock.monotonic()) == ("TERMINATED", 9, 0.25 + 5)
    assert trial.last_result["loss"] == pytest.approx(1 / 9)


def test_a_model_that_raises_fails_its_trial_where_it_raises(tmp_path: Path) -> None:
    def model(config: dict[str, Any]) -> Iterator[tuple[float, dict[str, float]]]:
        yield 1.0, {"loss": 1.0}
        raise ValueError("on purpose")

    def run(place: str, **executor: Any) -> Any:
        [trial] = tune.run(
            train, config={"x": 0.0}, storage_path=str(tmp_path / place), verbose=0, raise_on_failed_trial=False,
            checkpoint_freq=1, executor=SimulatedExecutor(**executor),
        ).trials  # fmt: skip
        return trial

    failed = run("model", model=model, save=lambda config: SAVE)
    assert (failed.status, failed.iteration, checkpoints(failed)) == ("ERROR", 1, [1])
    assert "on purpose" in failed.error.message
    failed = run("save", model=curve, save=lambda config: 12)
    assert "accepted is a SimulatedSave" in failed.error.message


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="save_s=-1.0 is not accepted; seconds from 0 are accepted"):
        SimulatedSave(save_s=-1.0)
    with pytest.raises(SettingError, match="bytes=0.5 is not accepted; a whole number"):
        SimulatedSave(bytes=0.5)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="upload_dir=.* is not accepted with virtual checkpoints"):
        simulated(tmp_path, sync_config=tune.SyncConfig(upload_dir=str(tmp_path / "bucket")))
