"""`ExperimentAnalysis`: the best of everything, and which checkpoint is meant."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.analysis.harness import run_trials
from tuner.error import SettingError


@pytest.mark.parametrize(("metric", "mode"), [("loss", "minimum"), ("loss", None), (None, "min"), (["a", "b"], "min")])
def test_what_best_means_must_be_clear(lab: Any, metric: Any, mode: Any) -> None:
    with pytest.raises(SettingError, match="metric|mode"):
        lab.analysis(metric, mode).get_best_trial()


def test_the_best_of_everything(lab: Any) -> None:
    first, second = run_trials(lab, [0.5, 0.9], [0.4, 0.3], ended=False)
    for trial in (first, second):
        lab.save(trial)
    analysis = lab.analysis()

    assert analysis.best_trial is second
    assert analysis.best_config == {"lr": 0.1}
    assert analysis.best_logdir == second.path
    assert analysis.best_result["loss"] == 0.3
    assert analysis.best_result["config"] == {"lr": 0.1}
    assert list(analysis.best_dataframe["loss"]) == [0.4, 0.3]
    assert list(analysis.best_result_df["config/lr"]) == [0.1]
    assert analysis.best_checkpoint == second.checkpoint
    assert analysis.results[first.trial_id]["loss"] == 0.9
    assert list(analysis.results_df["loss"]) == [0.9, 0.3]
    assert analysis.get_best_config(scope="all") == {"lr": 0.1}
    assert analysis.get_best_logdir("loss", "max") == first.path
    assert analysis.get_all_configs(prefix=True)[first.path] == {"config/lr": 0.1}
    assert analysis.stats()["trials"] == {"RUNNING": 2}


def test_a_trial_is_named_by_id_name_or_directory(lab: Any) -> None:
    (trial,) = run_trials(lab, [1.0], ended=False)
    lab.save(trial)
    analysis = lab.analysis()

    for name in (trial, trial.trial_id, trial.name, trial.path):
        assert analysis.get_best_checkpoint(name) == trial.checkpoint
    with pytest.raises(SettingError, match="nobody"):
        analysis.get_best_checkpoint("nobody")


@pytest.mark.parametrize(("mode", "best"), [("min", 3), ("max", 2)])
def test_the_best_checkpoint_of_a_trial_has_a_number_and_is_the_earliest_such(lab: Any, mode: str, best: int) -> None:
    trial = lab.trial()
    for value in (math.nan, 3.0, 1.0, 1.0, 3.0, None, 2.0):
        lab.report(trial, loss=value)
        lab.save(trial)
    analysis = lab.analysis()

    assert Path(analysis.get_best_checkpoint(trial, "loss", mode).path).name == f"checkpoint_{best:06d}"
    assert analysis.get_best_checkpoint(trial, "loss", mode, return_path=True).endswith(f"{best:06d}")
    assert Path(analysis.get_last_checkpoint(trial).path).name == "checkpoint_000007"
    paths = analysis.get_trial_checkpoints_paths(trial, "loss")
    assert [value for _, value in paths[1:]] == [3.0, 1.0, 1.0, 3.0, None, 2.0]
    assert analysis.get_best_checkpoint(trial, "nothing", mode) is None


def test_without_a_name_the_last_checkpoint_is_that_of_the_longest_trial(lab: Any) -> None:
    first, second = run_trials(lab, [1.0], [1.0, 1.0], ended=False)
    for trial in (first, second):
        lab.save(trial)

    assert lab.analysis().get_last_checkpoint() == second.checkpoint
