"""`ExperimentAnalysis`: the best of everything, and which checkpoint is meant."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


def test_without_results_there_is_no_best_and_one_warning_says_why(lab: Any, caplog: pytest.LogCaptureFixture) -> None:
    lab.trial(lr=0.1)
    analysis = lab.analysis()
    for _ in range(2):
        assert analysis.best_trial is analysis.best_config is analysis.best_logdir is analysis.best_checkpoint is None
        assert analysis.best_result is analysis.best_result_df is analysis.best_dataframe is None
    assert [record.message for record in caplog.records] == ["there is no best trial: no trial has reported anything"]


@pytest.mark.parametrize(
    ("values", "metric", "why"),
    [
        ([0.5], "losss", "no trial has reported a number 'losss'; reported, nearest first: loss"),
        (["text"], "loss", "no trial has reported a number 'loss': it is 'text'"),
        ([math.nan], "loss", "'loss' is NaN in all trials, or infinite and those were to be left out"),
    ],
)
def test_why_no_trial_is_the_best(lab: Any, values: list[Any], metric: str, why: str) -> None:
    run_trials(lab, values)
    assert lab.analysis().why_not(metric).startswith(why)


def test_a_trial_without_a_scored_checkpoint_is_named_once(lab: Any, caplog: pytest.LogCaptureFixture) -> None:
    (trial,) = run_trials(lab, [0.5])
    analysis = lab.analysis()
    for _ in range(2):
        assert analysis.get_best_checkpoint(trial) is None
        assert analysis.get_best_checkpoint(trial, return_path=True) is None
    assert [record.message for record in caplog.records] == [
        "train_ab_00000 has no checkpoint whose result has a number 'loss'"
    ]


@pytest.mark.parametrize("given", ["nobody", "", "ab_0000", Path("ab_00001")])
def test_a_trial_that_is_not_there_is_named(lab: Any, given: Any) -> None:
    run_trials(lab, [0.5])
    with pytest.raises(SettingError, match=r"trial=.* is not accepted: no trial has that id, name or directory"):
        lab.analysis().get_best_checkpoint(given)


def test_it_is_readable(lab: Any) -> None:
    run_trials(lab, [0.5], [0.4])
    assert repr(lab.analysis()) == f"ExperimentAnalysis({str(lab.state.root)!r}, 2 trials)"


@pytest.mark.parametrize(
    ("of_run", "asked", "objectives"),
    [
        (("loss", "min"), (None, None), (["loss"], ["min"])),
        (("loss", "min"), ("acc", None), (["acc"], ["min"])),
        (("loss", "min"), (None, "max"), (["loss"], ["max"])),
        ((["a", "b"], ["min", "max"]), (None, None), (["a", "b"], ["min", "max"])),
        ((["a", "b"], ["min", "max"]), ("b", None), (["b"], ["max"])),
        ((["a", "b"], "min"), (None, None), (["a", "b"], ["min", "min"])),
        ((None, None), ("a", "max"), (["a"], ["max"])),
        ((None, None), (None, None), ([], [])),
    ],
)
def test_objectives_are_those_asked_for_or_the_runs(lab: Any, of_run: Any, asked: Any, objectives: Any) -> None:
    seen = lab.analysis(*of_run)._seen(*asked)
    assert (seen.metrics, seen.modes) == objectives


def test_an_objective_without_a_mode_is_refused_and_a_study_without_one(lab: Any) -> None:
    run_trials(lab, [0.5])
    with pytest.raises(SettingError, match="mode"):
        lab.analysis(["a", "b"], None).plot()
    with pytest.raises(SettingError, match="a study needs an objective: give metric= and mode="):
        _ = lab.analysis(None, None).study


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from([1.0, 2.0, 3.0, math.nan, math.inf, None]), min_size=1, max_size=7),
    st.sampled_from(["min", "max"]),
    st.integers(1, 4),
)
def test_the_best_checkpoint_is_never_beaten_by_one_that_is_kept(
    lab: Any, values: list[Any], mode: str, keep: int
) -> None:
    trial = lab.trial()
    for value in values:
        lab.report(trial, **({} if value is None else {"loss": value}))
        lab.save(trial)
    numbers = [value for value in values if value is not None and not math.isnan(value)]
    best = lab.analysis().get_best_checkpoint(trial, "loss", mode, return_path=True)
    if not numbers:
        assert best is None or math.nan in values
    else:
        wanted = values.index(min(numbers) if mode == "min" else max(numbers)) + 1
        assert best.endswith(f"checkpoint_{wanted:06d}"), "the earliest of equal ones"
    named = {"num_to_keep": keep, "checkpoint_score_attribute": "loss", "checkpoint_score_order": mode}
    kept = lab.analysis(**named).best_checkpoints(trial)
    assert len(kept) == min(keep, len(values))
    scores = [record.metrics.get("loss") for record in kept]
    scored = [score for score in scores if score is not None and not math.isnan(score)]
    assert scored == sorted(scored, reverse=mode == "min"), "worst to best"
    assert len(scored) == min(keep, len(numbers))
