"""What was saved before a trial started anew, or became a clone, is not its best, and goes once there is more (R4)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tuner.schedulers.base import Decision, Exploit, TrialScheduler
from tuner.tuner import ResultGrid


def twice(config: dict[str, Any]) -> None:
    """Its first life is the better one by its scores, and fails."""
    anew = Path(config["flag"]).exists()
    Path(config["flag"]).touch()
    for score in [4, 3, 2, 1] if anew else [11, 12, 13]:
        if anew and config["saves_later"] and score > 1:
            tune.report({"s": score})
        else:
            tune.report({"s": score}, checkpoint=tune.Checkpoint.from_dict({"s": score}))
    if not anew:
        raise ValueError("the first life ends")


def run(trainable: Any, path: Path, **settings: Any) -> tune.ExperimentAnalysis:
    return tune.run(
        trainable,
        storage_path=path,
        **{"name": "e", "executor": "inline", "verbose": 0, "keep_checkpoints_num": 1, **settings},
    )


def restarted(path: Path, *, saves_later: bool = False, **settings: Any) -> tune.ExperimentAnalysis:
    settings = {
        "config": {"flag": str(path / "flag"), "saves_later": saves_later},
        "checkpoint_score_attr": "s",
        "metric": "s",
        "raise_on_failed_trial": False,
        **settings,
    }
    first = run(twice, path, **settings)
    assert first.trials[0].status == "ERROR" and first.best_checkpoint.to_dict()["s"] == 13
    return run(twice, path, resume="AUTO+RESTART_ERRORED", **settings)


def saved(trial: Any) -> list[str]:
    return sorted(name for name in os.listdir(trial.path) if name.startswith("checkpoint"))


def test_f10_a_trial_that_started_anew_keeps_the_best_and_the_latest_of_its_new_life(tmp_path: Path) -> None:
    analysis = restarted(tmp_path)
    trial = analysis.trials[0]
    assert [record.metrics["s"] for record in trial.checkpoints] == [4, 1]
    assert saved(trial) == ["checkpoint_000001-2.2", "checkpoint_000004-2.2"]
    assert analysis.best_checkpoint.to_dict()["s"] == 4
    read = tune.ExperimentAnalysis(tmp_path / "e")
    (best,) = ResultGrid(read).get_best_result("s", "max").best_checkpoints
    assert best[1]["s"] == 4
    assert read.get_best_checkpoint(read.trials[0]).to_dict()["s"] == 4


def test_f10_all_checkpoints_stay_without_a_limit_and_the_best_is_of_the_new_life(tmp_path: Path) -> None:
    analysis = restarted(tmp_path, keep_checkpoints_num=None)
    assert len(saved(analysis.trials[0])) == 7
    assert analysis.best_checkpoint.to_dict()["s"] == 4
    assert [record.metrics["s"] for record in analysis.best_checkpoints(analysis.trials[0])] == [1, 2, 3, 4]


def test_f27_under_a_budget_the_life_that_ended_goes_first(tmp_path: Path) -> None:
    analysis = restarted(tmp_path, keep_checkpoints_num=None, checkpoint_budget="1GB")
    assert [record.metrics["s"] for record in analysis.trials[0].checkpoints] == [4, 3, 2, 1]


def test_d06_what_the_ended_life_saved_stays_until_there_is_something_newer(tmp_path: Path) -> None:
    seen = []

    class Look(tune.Callback):
        changes_results = False

        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
            seen.append([record.metrics["s"] for record in trial.checkpoints])

    trial = restarted(tmp_path, saves_later=True, callbacks=[Look()]).trials[0]
    assert seen[-1] == [13]  # at its last report; those before were told once
    assert [record.metrics["s"] for record in trial.checkpoints] == [1]


def rising(config: dict[str, Any]) -> None:
    """As a clone it reports less than before: by its scores the life before would be the best."""
    start, base = tune.get_checkpoint(), config["base"]
    step = 0 if start is None else int(start.to_dict()["step"])
    while step < 6:
        step += 1
        tune.report({"s": base + step}, checkpoint=tune.Checkpoint.from_dict({"step": step, "s": base + step}))


class Cloned(TrialScheduler):
    """The second trial becomes a clone of the first at its third result."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []

    def on_trial_add(self, trial: Any) -> None:
        self.ids.append(trial.trial_id)

    def on_trial_result(self, trial: Any, result: dict[str, Any]) -> Any:
        if trial.trial_id in self.ids[1:] and result["training_iteration"] == 3:
            return Exploit(self.ids[0], {"base": -100})
        return Decision.CONTINUE

    def choose_trial_to_run(self, pending: Any) -> Any:
        return next(iter(pending), None)


@pytest.mark.parametrize("keep", [1, None])
def test_t13_the_best_of_a_clone_is_not_of_its_own_life_before(tmp_path: Path, keep: int | None) -> None:
    settings: dict[str, Any] = {"metric": "s", "mode": "max", "checkpoint_score_attr": "s"}
    donor, clone = run(
        rising, tmp_path, scheduler=Cloned(), config={"base": tune.grid_search([0, 10])}, max_concurrent_trials=1,
        keep_checkpoints_num=keep, stop={"training_iteration": 5}, **settings,
    ).trials  # fmt: skip
    read = tune.ExperimentAnalysis(tmp_path / "e")
    assert clone.clones and donor.trial_id == clone.started_from.trial_id
    assert read.get_best_checkpoint(read.trials[1]).to_dict()["s"] < 0
    assert all(record.metrics["s"] < 0 for record in read.best_checkpoints(read.trials[1]))
    assert [record.metrics["s"] < 0 for record in clone.checkpoints].count(False) == (0 if keep else 3)
    assert len(donor.checkpoints) == (1 if keep else 5)
