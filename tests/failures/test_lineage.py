"""What a trial saved before it started anew is not its best, and is deleted once it saves again (R4).

The best of a clone, and of a trial that is tried again, is the best of all its lives.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.replicated import answer
from tuner.analysis import scopes
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
    """As a clone it reports less than before: by its scores the life before is the best."""
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


@pytest.mark.parametrize(
    ("keep", "attribute", "left"),
    [
        (1, "s", [13, -94]),
        (2, "s", [12, 13, -94]),
        (None, "s", [11, 12, 13, -94]),
        (1, None, [-94]),
    ],
)
def test_t13_the_best_of_a_clone_is_the_best_of_all_its_lives(
    tmp_path: Path, keep: int | None, attribute: str | None, left: list[int]
) -> None:
    settings: dict[str, Any] = {"metric": "s", "mode": "max", "checkpoint_score_attr": attribute}
    donor, clone = run(
        rising, tmp_path, scheduler=Cloned(), config={"base": tune.grid_search([0, 10])}, max_concurrent_trials=1,
        keep_checkpoints_num=keep, stop={"training_iteration": 5}, **settings,
    ).trials  # fmt: skip
    read = tune.ExperimentAnalysis(tmp_path / "e")
    assert clone.clones and donor.trial_id == clone.started_from.trial_id
    assert [record.metrics["s"] for record in clone.checkpoints] == left
    best = read.get_best_checkpoint(read.trials[1], "s", "max")
    assert best.to_dict()["s"] == max(left) == ResultGrid(read)[1].get_best_checkpoint("s", "max").to_dict()["s"]
    assert [record.metrics["s"] for record in read.best_checkpoints(read.trials[1])] == sorted(left)[-(keep or 9) :]
    assert len(donor.checkpoints) == (5 if keep is None else keep)


def test_each_result_names_the_config_that_its_trial_had_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(config: dict[str, Any]) -> None:
        start = tune.get_checkpoint()
        for step in range(1 if start is None else int(start.to_dict()["step"]) + 1, 7):
            made = tune.Checkpoint.from_dict({"step": step})
            tune.report({"s": config["base"] + step, "base": config["base"]}, checkpoint=made)

    analysis = run(
        told, tmp_path, scheduler=Cloned(), config={"base": tune.grid_search([0, 10])}, max_concurrent_trials=1,
        metric="s", mode="max", stop={"training_iteration": 5},
    )  # fmt: skip
    for read in (analysis, tune.ExperimentAnalysis(tmp_path / "e")):
        (frame,) = (frame for path, frame in read.trial_dataframes.items() if path == read.trials[1].path)
        assert list(frame["config/base"]) == list(frame["base"]) == [10, 10, 10, -100]
        assert read.get_best_config(scope="all") == {"base": 10} and read.best_config == {"base": 0}
    best = json.loads(answer(capsys, "best", tmp_path / "e", "--scope", "all", "--json"))
    assert (best["value"], best["config"], best["result"]["base"]) == (13, {"base": 10}, -100)


def test_t13_the_commands_find_the_best_of_a_clone_from_before_it_was_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(
        rising, tmp_path, scheduler=Cloned(), config={"base": tune.grid_search([0, 10])}, max_concurrent_trials=1,
        metric="s", mode="max", checkpoint_score_attr="s", stop={"training_iteration": 5},
    )  # fmt: skip
    best = json.loads(answer(capsys, "best", tmp_path / "e", "--scope", "all", "--json"))
    assert (best["index"], best["value"], Path(best["checkpoint"]).name) == (1, 13, "checkpoint_000003")
    rows = json.loads(answer(capsys, "show", tmp_path / "e", "1", "--why", "--json"))["why"]
    assert {row["iteration"]: row["why"] for row in rows if row["fate"] == "kept"} == {3: ["best:1:s"], 4: ["latest"]}


def failing(config: dict[str, Any]) -> None:
    """Its best result comes first, before all that a second attempt repeats."""
    start = tune.get_checkpoint()
    step = 0 if start is None else int(start.to_dict()["step"])
    while step < 6:
        step += 1
        if step == 5 and start is None:
            raise ValueError("the first life ends")
        tune.report({"s": 50 if step == 1 else step}, checkpoint=tune.Checkpoint.from_dict({"step": step}))


def test_the_best_of_a_trial_that_is_tried_again_is_the_best_of_all_its_lives(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"metric": "s", "mode": "max", "checkpoint_score_attr": "s"}
    first = run(failing, tmp_path, raise_on_failed_trial=False, **settings)
    assert first.trials[0].status == "ERROR"
    analysis = run(failing, tmp_path, resume="AUTO+ERRORED", **settings)
    assert [record.metrics["s"] for record in analysis.trials[0].checkpoints] == [50, 6]
    assert analysis.best_checkpoint.to_dict()["step"] == 1
    assert scopes.score(analysis.trials[0], "s", "max", "all") == 50
    assert analysis.trials[0].metric_analysis["s"] == {"min": 2, "max": 50, "avg": pytest.approx(70 / 6)}


@pytest.mark.parametrize("keep", [1, None])
def test_t13_a_clone_that_starts_anew_keeps_nothing_of_its_lives_before(tmp_path: Path, keep: int | None) -> None:
    flag = tmp_path / "flag"

    def fails(config: dict[str, Any]) -> None:
        start, base = tune.get_checkpoint(), config["base"]
        step = 0 if start is None else int(start.to_dict()["step"])
        while step < 6:
            step += 1
            if base < 0 and step == 5 and not flag.exists():
                flag.touch()
                raise ValueError("the clone fails")
            tune.report({"s": base + step}, checkpoint=tune.Checkpoint.from_dict({"step": step, "s": base + step}))

    settings: dict[str, Any] = {
        "metric": "s", "mode": "max", "checkpoint_score_attr": "s", "keep_checkpoints_num": keep,
        "config": {"base": tune.grid_search([0, 10])}, "max_concurrent_trials": 1, "stop": {"training_iteration": 4},
        "raise_on_failed_trial": False,
    }  # fmt: skip
    first = run(fails, tmp_path, scheduler=Cloned(), **settings)
    assert [trial.status for trial in first.trials] == ["TERMINATED", "ERROR"]
    assert first.get_best_checkpoint(first.trials[1]).to_dict()["s"] == 13
    analysis = run(fails, tmp_path, scheduler=Cloned(), resume="AUTO+RESTART_ERRORED", **settings)
    trial = analysis.trials[1]
    best = analysis.get_best_checkpoint(trial)
    assert best.to_dict()["s"] == max(record.metrics["s"] for record in trial.ranked_checkpoints)
    assert all(record.ref.generation == 2 for record in trial.ranked_checkpoints)
    assert len(trial.checkpoints) == len(trial.ranked_checkpoints) or keep is None
