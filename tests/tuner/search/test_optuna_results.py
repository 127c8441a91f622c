"""What a study is told of trials: how each ends in it, and what was evaluated elsewhere."""

from __future__ import annotations

import math
from typing import Any

import optuna
import pytest

import tuner as tune
from tests.tuner.search.optuna_harness import drive, finish, make, study_of
from tuner.search import Searcher


@pytest.mark.parametrize(
    ("result", "error", "state"),
    [
        ({"loss": 1.0}, False, "COMPLETE"),
        ({"loss": math.inf}, False, "COMPLETE"),
        ({"loss": 1.0}, True, "FAIL"),
        ({"loss": math.nan}, False, "FAIL"),
        (None, True, "FAIL"),
        (None, False, "FAIL"),
        ({"other": 1.0}, False, "FAIL"),
        ({"loss": "text"}, False, "FAIL"),
    ],
)
def test_how_a_trial_ends_in_the_study(result: Any, error: bool, state: str) -> None:
    searcher = make()
    searcher.suggest("t")
    searcher.on_trial_complete("t", result, error)
    assert study_of(searcher).trials[0].state.name == state


def test_a_trial_with_results_on_the_way_and_none_at_the_end_is_pruned() -> None:
    searcher = make()
    searcher.suggest("t")
    searcher.on_trial_result("t", {"training_iteration": 1, "loss": 4.0})
    searcher.on_trial_complete("t", {"training_iteration": 2})
    (trial,) = study_of(searcher).trials
    assert (trial.state.name, trial.value) == ("PRUNED", 4.0)


def test_t03_intermediate_values_are_told_once_per_step() -> None:
    searcher = make()
    searcher.suggest("t")
    for iteration, loss in ((1, 4.0), (2, 3.0), (2, 99.0), (1, 99.0), (3, math.nan), (4, "text"), (5, 1.0)):
        searcher.on_trial_result("t", {"training_iteration": iteration, "loss": loss})
    values = study_of(searcher).trials[0].intermediate_values
    assert {step: value for step, value in values.items() if value == value} == {1: 4.0, 2: 3.0, 5: 1.0}


@pytest.mark.parametrize("result", [{"eval": {"loss": 2.0}}, {"eval/loss": 2.0}, {"eval.loss": 2.0}])
def test_f12_a_nested_metric_is_found_however_it_is_spelled(result: dict[str, Any]) -> None:
    searcher = make(metric="eval/loss", mode="min")
    searcher.suggest("t")
    searcher.on_trial_result("t", {"training_iteration": 1, **result})
    searcher.on_trial_complete("t", {"training_iteration": 1, **result})
    (trial,) = study_of(searcher).trials
    assert (trial.value, trial.intermediate_values) == (2.0, {1: 2.0})


def test_a_failed_trial_that_is_continued_counts_in_the_end() -> None:
    searcher = make(run_space={"u": tune.uniform(0, 1)})
    config = searcher.suggest("t")
    searcher.on_trial_result("t", {"training_iteration": 1, "loss": 9.0})
    searcher.on_trial_complete("t", {"training_iteration": 1, "loss": 9.0}, error=True)
    finish(searcher, "t", 2.0, iteration=3)
    best = study_of(searcher).best_trial
    assert (best.value, best.params) == (2.0, config)


def test_what_it_was_never_asked_about_is_passed_over() -> None:
    searcher = make()
    finish(searcher, "stranger", 1.0)
    assert study_of(searcher).trials == []


def test_several_objectives() -> None:
    searcher = make(metric=["loss", "time"], mode=["min", "max"], run_space={"u": tune.uniform(0, 1)})
    assert list(searcher.metric or ()) == ["loss", "time"]
    for number, last in enumerate(
        [{"loss": 1.0, "time": 5.0}, {"loss": 2.0, "time": 9.0}, {"loss": 1.0}, {"loss": math.nan, "time": 1}]
    ):
        searcher.suggest(f"t{number}")
        searcher.on_trial_result(f"t{number}", {"training_iteration": 1, **last})
        searcher.on_trial_complete(f"t{number}", {"training_iteration": 1, **last})
    study = study_of(searcher)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE", "FAIL", "FAIL"]
    assert [direction.name for direction in study.directions] == ["MINIMIZE", "MAXIMIZE"]
    assert sorted(tuple(trial.values) for trial in study.best_trials) == [(1.0, 5.0), (2.0, 9.0)]


def test_evaluated_points_are_learned_from_and_not_run() -> None:
    space = {"u": tune.uniform(-1, 1), "n": tune.randn()}
    searcher = make(
        points_to_evaluate=[{"u": 0.5, "n": 0.0}, {"u": 0.25, "n": 1.0}], evaluated_rewards=[0.1, 0.2], run_space=space
    )
    config = searcher.suggest("t")
    assert isinstance(config, dict) and config["u"] not in (0.5, 0.25)
    assert [trial.value for trial in study_of(searcher).trials] == [0.1, 0.2, None]
    study_of(searcher)
    inner: Any = searcher
    inner.add_evaluated_point({"u": 0.0, "n": 0.0}, 7.0, intermediate_values=[9.0, 8.0])
    assert study_of(searcher).trials[-1].intermediate_values == {0: 9.0, 1: 8.0}


def test_a_storage_of_the_users_is_joined_again(tmp_path: Any) -> None:
    def opened() -> Searcher:
        backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.log"))
        storage = optuna.storages.JournalStorage(backend)
        return make(storage=storage, study_name="mine", run_space={"u": tune.uniform(-1, 1)})

    first = opened()
    configs = drive(first, 3)
    again = opened()
    for number, config in enumerate(configs):
        assert again.replay_suggest(f"t{number}", config)
        finish(again, f"t{number}", abs(config["u"]))
    drive(again, 1, start=3)
    assert [trial.state.name for trial in study_of(again).trials] == ["COMPLETE"] * 4
