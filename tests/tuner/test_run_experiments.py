"""Experiments as values: one, a list, a dict; each with its own arguments and its own place, each resumable."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from trainables.config import SyncConfig
from tuner.error import SettingError, TrialsFailedError
from tuner.experiment import Experiment
from tuner.experiment.definition import experiments_of
from tuner.schedulers import ASHAScheduler


def report_thrice(config: dict[str, Any]) -> None:
    for step in range(1, 4):
        if config["x"] == "fails":
            raise ValueError("on purpose")
        tune.report({"score": config["x"] * step})


def two(tmp_path: Path, x: Any = 1) -> list[Experiment]:
    return [
        Experiment(
            "one", report_thrice, config={"x": x}, num_samples=2, stop={"training_iteration": 2}, local_dir=tmp_path
        ),
        Experiment("two", report_thrice, config={"x": 5}, storage_path=str(tmp_path)),
    ]


COMMON: dict[str, Any] = {"verbose": 0, "executor": "inline"}


def test_a_list_of_experiments_runs_each_as_it_says_and_gives_the_trials_of_all(tmp_path: Path) -> None:
    scheduler = ASHAScheduler(max_t=3)
    analysis = tune.run(two(tmp_path), metric="score", mode="max", scheduler=scheduler, **COMMON)
    assert [(Path(trial.local_dir).name, trial.iteration) for trial in analysis.trials] == [
        ("one", 2),
        ("one", 2),
        ("two", 3),
    ]
    assert analysis.best_config == {"x": 5} and len(analysis.dataframe()) == 3
    assert scheduler.debug_string() == ASHAScheduler(max_t=3).debug_string()  # each had a copy of its own


def test_each_is_resumed_by_itself_and_one_that_had_not_begun_begins(tmp_path: Path) -> None:
    tune.run(two(tmp_path)[0], **COMMON)
    trials = tune.run_experiments(two(tmp_path), resume=True, concurrent=False, **COMMON)
    assert [Path(trial.local_dir).name for trial in trials] == ["one", "one", "two"]
    assert (tmp_path / "one" / "journal").exists() and (tmp_path / "two").is_dir()
    again = tune.run_experiments(two(tmp_path), resume=True, **COMMON)
    assert [trial.trial_id for trial in again] == [trial.trial_id for trial in trials]
    assert {trial.attempt for trial in again} == {1}


def test_a_dict_is_as_good_and_what_fails_is_said_after_the_last(tmp_path: Path) -> None:
    given = {
        "bad": {"run": report_thrice, "config": {"x": "fails"}},
        "good": {"run": report_thrice, "config": {"x": 2}},
    }
    with pytest.raises(TrialsFailedError, match="bad") as caught:
        tune.run_experiments(given, storage_path=tmp_path, **COMMON)
    assert [trial.status for trial in caught.value.analysis.trials] == ["ERROR", "TERMINATED"]
    assert tune.run_experiments(None) == []


def test_what_is_no_experiment_is_refused() -> None:
    with pytest.raises(SettingError, match="there is nothing to run"):
        tune.run([])
    with pytest.raises(SettingError, match="accepted are Experiments, a list of them, or a dict"):
        tune.run([report_thrice])
    with pytest.raises(SettingError, match="same is there more than once"):
        experiments_of([Experiment("same", report_thrice), Experiment("same", report_thrice)])
    with pytest.raises(SettingError, match="'mine' has no 'run'; it has config"):
        Experiment.from_json("mine", {"config": {}})


def test_an_experiment_tells_what_it_is(tmp_path: Path) -> None:
    one = two(tmp_path)[0]
    assert (one.name, one.dir_name, one.run_identifier) == ("one", "one", "report_thrice")
    assert one.path == one.local_path == one.checkpoint_dir == str(tmp_path / "one") and one.local_dir == str(tmp_path)
    assert one.public_spec == {"stop": {"training_iteration": 2}, "num_samples": 2, "time_budget_s": None}
    assert one.spec["run"] == "report_thrice" and one.stopper is None and one.remote_checkpoint_dir is None
    assert one.checkpoint_config.num_to_keep is None

    def stop(trial_id: str, result: dict[str, Any]) -> bool:
        return True

    spec: dict[str, Any] = {
        "run": report_thrice, "env": "CartPole", "sync_config": {"upload_dir": "s3://bucket/runs/"}, "stop": stop
    }  # fmt: skip
    before = copy.deepcopy(spec)
    made = Experiment.from_json("far", spec)
    assert spec == before
    assert made.spec["config"] == {"env": "CartPole"} and made.stopper is stop
    assert isinstance(made.arguments["sync_config"], SyncConfig) and made.remote_path == "s3://bucket/runs/far"
    assert Experiment(None, report_thrice).name == "report_thrice"
    assert Experiment("elsewhere", report_thrice, storage_path="s3://bucket/x").remote_path == "s3://bucket/x/elsewhere"
    assert (
        Experiment.register_if_needed(report_thrice) == Experiment.get_trainable_name(report_thrice) == "report_thrice"
    )
