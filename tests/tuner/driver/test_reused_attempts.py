"""Trials that begin with what an earlier experiment trained: what they train, tell, decide and keep."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tuner.schedulers import ASHAScheduler, HyperBandScheduler, PopulationBasedTraining, TrialScheduler
from tuner.search import BasicVariantGenerator

RATES = (0.1, 0.2, 0.3, 0.4)


class Counts(tune.Trainable):
    """Writes a line for each step."""

    def setup(self, config: dict[str, Any]) -> None:
        self.count = 0

    def step(self) -> dict[str, Any]:
        self.count += 1
        _write(self.config, self.count)
        return {"loss": self.config["lr"] * self.count}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "count").write_text(str(self.count))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        self.count = int(Path(checkpoint_dir, "count").read_text())


def counts(config: dict[str, Any]) -> None:
    checkpoint = tune.get_checkpoint()
    count = checkpoint.to_dict()["count"] if checkpoint is not None else 0
    while count < 6:
        count += 1
        _write(config, count)
        tune.report({"loss": config["lr"] * count}, checkpoint=tune.Checkpoint.from_dict({"count": count}))


def _write(config: dict[str, Any], count: int) -> None:
    with open(os.environ["LINES_OF_STEPS"], "a") as file:
        file.write(f"{config['lr']} {count}\n")


class Counted:
    """Runs, and what they have trained."""

    def __init__(self, storage: Path) -> None:
        self.storage, self.lines = storage, storage / "lines"

    def run(self, name: str, until: int, trainable: Any = Counts, **more: Any) -> tune.ExperimentAnalysis:
        settings: dict[str, Any] = {"executor": "inline", "checkpoint_freq": 3 if trainable is Counts else 0, **more}
        return tune.run(
            trainable,
            name=name,
            storage_path=self.storage,
            config={"lr": tune.grid_search(list(RATES))},
            metric="loss",
            mode="min",
            verbose=0,
            **{"stop": {"training_iteration": until}, **settings},
        )

    def trained(self) -> list[str]:
        """What was trained since the last time."""
        found = self.lines.read_text().splitlines() if self.lines.exists() else []
        self.lines.unlink(missing_ok=True)
        return sorted(found)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four trials of nine steps of a class that saved at 3, 6 and 9, and of four of a function that saves each."""
    counted = Counted(tmp_path_factory.mktemp("first"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LINES_OF_STEPS", str(counted.lines))
        counted.run("class", 9)
        counted.run("function", 4, counts, executor=None)
    return counted.storage


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counted:
    found = Counted(tmp_path)
    monkeypatch.setenv("LINES_OF_STEPS", str(found.lines))
    return found


class Hears(BasicVariantGenerator):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[str, int]] = []

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.heard.append((trial_id, result["training_iteration"]))


def test_a_second_run_in_processes_trains_only_what_the_first_has_not(first: Path, counted: Counted) -> None:
    before = tune.ExperimentAnalysis(str(first / "function"))
    hears = Hears()
    analysis = counted.run("e", 6, counts, reuse=before, executor=None, search_alg=hears)
    assert counted.trained() == sorted(f"{lr} {count}" for lr in RATES for count in (5, 6))
    for trial, donor in zip(analysis.trials, before.trials, strict=True):
        rows = analysis.trial_dataframes[trial.path]
        assert list(rows["training_iteration"]) == [1, 2, 3, 4, 5, 6]
        assert list(rows["loss"]) == [trial.config["lr"] * count for count in range(1, 7)]
        assert set(rows["trial_id"]) == {trial.trial_id}
        assert [told for told in hears.heard if told[0] == trial.trial_id] == [(trial.trial_id, n) for n in range(1, 7)]
        assert [record.iteration for record in trial.checkpoints] == [4, 5, 6]
        reused = trial.reused
        assert reused is not None
        assert (reused.experiment, reused.trial, reused.iteration) == (before.experiment_path, donor.trial_id, 4)


def test_a_shorter_run_trains_nothing_and_has_the_checkpoint_of_its_own_length(first: Path, counted: Counted) -> None:
    trials = counted.run("e", 5, reuse=first / "class").trials
    assert counted.trained() == []
    assert {trial.status for trial in trials} == {"TERMINATED"} and {trial.iteration for trial in trials} == {5}
    assert [[record.iteration for record in trial.checkpoints] for trial in trials] == [[3]] * 4
    assert all(record.metrics["loss"] == 3 * trial.config["lr"] for trial in trials for record in trial.checkpoints)


def test_one_that_is_to_be_saved_at_its_end_trains_up_to_there(first: Path, counted: Counted) -> None:
    trials = counted.run("e", 5, reuse=first / "class", checkpoint_freq=0, checkpoint_at_end=True).trials
    assert counted.trained() == sorted(f"{lr} {count}" for lr in RATES for count in (4, 5))
    assert [[record.iteration for record in trial.checkpoints] for trial in trials] == [[3, 5]] * 4
    assert [trial.iteration for trial in trials] == [5] * 4


@pytest.mark.parametrize(
    "scheduler",
    [
        lambda: ASHAScheduler(max_t=12, grace_period=2, reduction_factor=2),
        lambda: HyperBandScheduler(max_t=9),
        lambda: PopulationBasedTraining(perturbation_interval=4, hyperparam_mutations={"lr": list(RATES)}, seed=1),
    ],
    ids=["asha", "hyperband", "pbt"],
)
def test_schedulers_decide_as_if_it_were_trained_now(scheduler: Any, first: Path, counted: Counted) -> None:
    made: TrialScheduler = scheduler()
    straight = counted.run("straight", 12, scheduler=scheduler())
    steps = len(counted.trained())
    trials = counted.run("e", 12, scheduler=made, reuse=first / "class").trials
    assert len(counted.trained()) < steps
    assert all(trial.is_finished() for trial in trials)
    if isinstance(made, ASHAScheduler):
        ends = [[(trial.iteration, trial.end_reason) for trial in each] for each in (straight.trials, trials)]
        assert ends[0] == ends[1]


def test_a_damaged_checkpoint_gives_way_to_an_older_one_and_that_to_nothing(
    first: Path, counted: Counted, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(first / "class", counted.storage / "broken")
    zero, one = sorted((counted.storage / "broken").glob("Counts_*_0000[01]"))
    for directory in (zero / "checkpoint_000009", *one.glob("checkpoint_*")):
        (directory / "count").write_text("no")
    with caplog.at_level(logging.WARNING):
        counted.run("e", 10, reuse=counted.storage / "broken")
    assert counted.trained() == sorted(
        [f"0.1 {n}" for n in range(7, 11)] + [f"0.2 {n}" for n in range(1, 11)] + ["0.3 10", "0.4 10"]
    )
    said = [record.getMessage() for record in caplog.records if "reuse= failed" in record.getMessage()]
    assert len(said) == 2
    assert "broken@0@6, for" in said[0] and "checkpoint_000009" in said[0] and "from nothing" in said[1]


def test_a_resume_goes_on_without_the_earlier_experiment(
    first: Path, counted: Counted, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(first / "class", counted.storage / "gone")

    def interrupts(trial_id: str, result: dict[str, Any]) -> bool:
        if result["training_iteration"] == 10:
            raise KeyboardInterrupt
        return bool(result["training_iteration"] == 11)

    with pytest.raises(KeyboardInterrupt):
        counted.run("e", 11, reuse=counted.storage / "gone", stop=interrupts)
    shutil.rmtree(counted.storage / "gone")
    counted.trained()
    with caplog.at_level(logging.WARNING):
        trials = counted.run("e", 11, reuse=counted.storage / "gone", resume="AUTO").trials
    begun = [trial for trial in trials if trial.reused is not None]
    assert begun and all(f"{trial.config['lr']} 9" not in counted.lines.read_text() for trial in begun)
    assert all(trial.iteration == 11 for trial in trials)
    assert sum("trials that have not begun train from nothing" in each.getMessage() for each in caplog.records) == 1
