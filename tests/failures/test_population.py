"""Population based training under retention, seldom saves and kills: F05, F26, D12, T03, T13.

And pauses whose saves fail: F16.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.failures.checkpoint_faults import in_child
from trainables.store import publish
from tuner.schedulers import HyperBandScheduler, PopulationBasedTraining

SIDE_BY_SIDE = {"executor": "local", "resources_per_trial": {"cpu": 0.125}}
"""All eight at once: inline, one trial after another would run to its end."""


class Lockstep(tune.Callback):
    """Locks of files, one for each iteration: each opens when all eight trials have come so far, the first at 0."""

    changes_results = False

    def __init__(self, place: Path, steps: int) -> None:
        place.mkdir()
        self.locks = [os.open(place / str(step), os.O_RDWR | os.O_CREAT) for step in range(steps)]
        for lock in self.locks:
            fcntl.flock(lock, fcntl.LOCK_EX)
        self.reached: dict[str, int] = {}
        self.opened = 0

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self._come(trial, trial.iteration)

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
        self._come(trial, result["training_iteration"])

    def on_experiment_end(self, trials: Any, **info: Any) -> None:
        while self.locks:
            os.close(self.locks.pop())

    def _come(self, trial: Any, step: int) -> None:
        self.reached[trial.trial_id] = step
        while len(self.reached) == 8 and self.opened <= min(self.reached.values()) and self.opened < len(self.locks):
            fcntl.flock(self.locks[self.opened], fcntl.LOCK_UN)
            self.opened += 1


def gate(config: dict[str, Any], step: int) -> None:
    """Wait until all trials have come so far, where the config says where their locks are."""
    if (place := config.get("gates")) and (lock := Path(place, str(step))).exists():
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH)


def together(path: Path, steps: int) -> dict[str, Any]:
    """Return settings with which the eight trials run side by side, and none is ahead of the others until `steps`."""
    config = {"rate": tune.uniform(0, 1), "gates": str(path / "gates")}
    return {**SIDE_BY_SIDE, "config": config, "callbacks": [Lockstep(path / "gates", steps)]}


class Adversary(tune.Trainable):
    """The newest result is always the worst; what was loaded is checked to be a whole save of somebody."""

    def setup(self, config: dict[str, Any]) -> None:
        self.history: list[list[Any]] = []

    def step(self) -> dict[str, Any]:
        gate(self.config, self.iteration)
        self.history.append([self.trial_id, self.config["rate"]])
        return {"score": -len(self.history) - self.config["rate"], "length": len(self.history)}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "history").write_text(json.dumps(self.history))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        self.history = json.loads(Path(checkpoint_dir, "history").read_text())


def every_fourth(config: dict[str, Any]) -> None:
    gate(config, 0)
    weights = [0, ""]
    if (checkpoint := tune.get_checkpoint()) is not None:
        weights = checkpoint.to_dict()["weights"]
    while weights[0] < 40:
        weights = [weights[0] + 1, tune.get_trial_id()]
        saved = tune.Checkpoint.from_dict({"weights": weights}) if weights[0] % 4 == 0 else None
        tune.report({"score": weights[0] * config["rate"], "weights": weights[0]}, checkpoint=saved)


def population(interval: int, **settings: Any) -> PopulationBasedTraining:
    return PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=interval,
        hyperparam_mutations={"rate": tune.uniform(0, 1)},
        **settings,
    )


def run(path: Path, trainable: Any, scheduler: Any, **settings: Any) -> Any:
    chosen = {
        "executor": "inline", "verbose": 0, "name": "e", "metric": "score", "mode": "max", "seed": 5, "num_samples": 8,
        "config": {"rate": tune.uniform(0, 1)}, "keep_checkpoints_num": 1, **settings,
    }  # fmt: skip
    return tune.run(trainable, storage_path=path, scheduler=scheduler, **chosen)


def iterations(trial: Any) -> list[int]:
    return [json.loads(line)["training_iteration"] for line in Path(trial.path, "result.json").read_text().splitlines()]


def adversarial(path: Path, steps: int, *, synch: bool) -> None:
    beside: dict[str, Any] = {} if synch else together(path, steps)
    analysis = run(
        path, Adversary, population(1, synch=synch), stop={"training_iteration": steps}, checkpoint_freq=1, **beside
    )  # fmt: skip
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 8
    assert sum(len(trial.clones) for trial in analysis.trials) >= 8
    for trial in analysis.trials:
        assert iterations(trial) == list(range(1, steps + 1))
        assert trial.error is None and trial.num_failures == 0
        kept = [name for name in os.listdir(trial.path) if name.startswith("checkpoint")]
        assert 1 <= len(kept) <= 2, kept


@pytest.mark.parametrize("synch", [False, True])
def test_f05_a_donors_checkpoint_is_there_whatever_retention_does(tmp_path: Path, synch: bool) -> None:
    adversarial(tmp_path, 25, synch=synch)


@pytest.mark.soak
def test_f05_the_full_size(tmp_path: Path) -> None:
    adversarial(tmp_path, 500, synch=False)


def test_f26_functions_that_save_seldom_are_cloned_from_whole_checkpoints_and_never_stall(tmp_path: Path) -> None:
    analysis = run(tmp_path, every_fourth, population(3), keep_checkpoints_num=None, **together(tmp_path, 1))
    clones = [(trial, clone) for trial in analysis.trials for clone in trial.clones]
    assert clones and all(trial.status == "TERMINATED" for trial in analysis.trials)
    for trial in analysis.trials:
        assert iterations(trial) == list(range(1, len(iterations(trial)) + 1)), "the count never goes back"
    for trial, clone in clones:
        assert clone.donor.iteration % 4 == 0 or clone.donor.trial_id != trial.trial_id
        rows = [json.loads(line) for line in Path(trial.path, "result.json").read_text().splitlines()]
        donor = next(one for one in analysis.trials if one.trial_id == clone.donor.trial_id)
        given = [json.loads(line) for line in Path(donor.path, "result.json").read_text().splitlines()]
        saved = next(row for row in given if row["training_iteration"] == clone.donor.iteration)
        if saved["weights"] == 40:
            continue  # the donor's work was done, and so is the clone's
        after = next(row for row in rows if row["training_iteration"] == clone.iteration + 1)
        assert after["weights"] == saved["weights"] + 1, "the weights are the donor's, of that very checkpoint"
        assert set(clone.changed) <= {"rate"}


@pytest.mark.parametrize("at", [30, 57, 90, 121])
def test_d12_a_population_goes_on_after_a_kill(tmp_path: Path, at: int) -> None:
    """T03: each iteration counts once, in the files and for the scheduler."""

    class Die(tune.Callback):
        changes_results = False
        left = at

        def __reduce__(self) -> Any:
            return tune.Callback, ()

        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
            self.left -= 1
            if self.left == 0:
                os._exit(9)

    def once(callbacks: list[Any]) -> Any:
        return run(
            tmp_path, Adversary, population(2, synch=True), stop={"training_iteration": 20}, checkpoint_freq=1,
            resume="AUTO", callbacks=callbacks,
        )  # fmt: skip

    assert in_child(lambda: once([Die()])) == 9 << 8
    analysis = once([])
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 8
    for trial in analysis.trials:
        assert iterations(trial) == list(range(1, 21))
    assert sum(len(trial.clones) for trial in analysis.trials) >= 8


def refuse() -> None:
    raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


class CannotSave(tune.Trainable):
    """Its saves fail, but for those before `config["from"]`, until there is the file `config["space"]`."""

    def setup(self, config: dict[str, Any]) -> None:
        self.count = 0

    def step(self) -> dict[str, Any]:
        self.count += 1
        return {"score": self.config["rate"], "count": self.count}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        if self.count >= self.config.get("from", 0) and not Path(self.config.get("space", "/nowhere")).exists():
            refuse()
        return {"count": self.count}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.count = checkpoint["count"]


def cannot_publish(config: dict[str, Any]) -> None:
    """The disk refuses what it saved, behind the training."""
    publish.commit = lambda *arguments: refuse()  # type: ignore[assignment,return-value]
    for count in range(1, 10):
        saved = tune.Checkpoint.from_dict({"count": count}) if count % 3 == 0 else None
        tune.report({"score": config["rate"]}, checkpoint=saved)


class Bounded(tune.Callback):
    """Ends the test where a trial would begin again and again."""

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        assert trial.attempt <= 20


SCHEDULERS: dict[str, Any] = {
    "hyperband": lambda: HyperBandScheduler(max_t=9),
    "pbt": lambda: population(3, synch=True),
}


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("trainable", [CannotSave, cannot_publish])
def test_f16_a_trial_whose_pauses_are_never_saved_fails(tmp_path: Path, trainable: Any, scheduler: str) -> None:
    analysis = run(
        tmp_path, trainable, SCHEDULERS[scheduler](), num_samples=6, raise_on_failed_trial=False,
        stop={"training_iteration": 9}, callbacks=[Bounded()], **SIDE_BY_SIDE,
    )  # fmt: skip
    failed = [trial for trial in analysis.trials if trial.status == "ERROR"]
    assert failed and all(trial.is_finished() for trial in analysis.trials)
    for trial in failed:
        stopped = trial.told_then == "stop"  # at whichever rung its last result came to, and the save there failed too
        assert trial.attempt == (1 if stopped else 3)
        assert trial.save_failures in ({1, 2, 3} if stopped else {3})
        assert trial.error.type == "PublishError" and trial.error.disk
        said = "the last checkpoint that was to be saved" if stopped else "3 checkpoints in a row were not saved"
        assert said in trial.error.message
        assert os.strerror(errno.EDQUOT) in trial.error.message


def test_f16_the_number_counts_for_pauses_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_MAX_PUBLISH_FAILURES", "1")
    analysis = run(
        tmp_path, cannot_publish, population(3, synch=True), num_samples=2, raise_on_failed_trial=False,
        callbacks=[Bounded()], **SIDE_BY_SIDE,
    )  # fmt: skip
    assert [(trial.status, trial.attempt, trial.iteration) for trial in analysis.trials] == [("ERROR", 1, 3)] * 2


def test_f16_a_trial_whose_pauses_are_not_saved_waits_for_space_before_it_is_tried_again(tmp_path: Path) -> None:
    config = {"rate": tune.uniform(0, 1), "from": 4, "space": str(tmp_path / "space")}
    analysis = run(
        tmp_path, CannotSave, population(2, synch=True), num_samples=2, raise_on_failed_trial=False, config=config,
        max_failures=-1, callbacks=[Bounded()], **SIDE_BY_SIDE,
    )  # fmt: skip
    for trial in analysis.trials:
        assert trial.status == "ERROR" and trial.error.disk
        assert [saved.iteration for saved in trial.checkpoints] == [2]
    Path(config["space"]).touch()
    analysis = run(
        tmp_path, CannotSave, population(2, synch=True), num_samples=2, config=config, resume="AUTO",
        stop={"training_iteration": 6}, **SIDE_BY_SIDE,
    )  # fmt: skip
    assert [(trial.status, trial.save_failures) for trial in analysis.trials] == [("TERMINATED", 0)] * 2
    assert all(iterations(trial) == list(range(1, 7)) for trial in analysis.trials)
