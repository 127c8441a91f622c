"""What a study is told of trials: how each ends in it, and what was evaluated elsewhere."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import cloudpickle
import optuna
import pytest

import tuner as tune
from tests.tuner.search.optuna_harness import by_run, drive, finish, make, study_of
from tuner.error import SettingError
from tuner.search import Searcher
from tuner.search.optuna import OptunaSearch


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


# --- learning from earlier experiments

SMALL = {"u": tune.uniform(-1, 1), "c": tune.choice(["a", "b"])}


def earlier(name: str, config: dict[str, Any], **result: Any) -> Any:
    return SimpleNamespace(trial_id=name, config=config, last_result=result, status="TERMINATED")


@pytest.mark.parametrize(
    ("config", "result", "why"),
    [
        ({"u": 0.5, "c": "a"}, {"loss": 1.0}, None),
        ({"u": 0.5, "c": "a", "more": 3}, {"loss": 1.0}, None),
        ({"u": 0.5, "c": "a"}, {}, "old has no loss"),
        ({"u": 0.5, "c": "a"}, {"loss": math.nan}, "old has no loss"),
        ({"u": 2.0, "c": "a"}, {"loss": 1.0}, r"old: u=2.0 is not a value of uniform(-1.0, 1.0)"),
        ({"u": 0.5}, {"loss": 1.0}, "old: it has no c"),
    ],
)
def test_what_is_learned_from_a_trial_of_before(config: Any, result: Any, why: str | None) -> None:
    searcher = make(run_space=SMALL)
    assert searcher.learn_from(earlier("old", config, **result)) == why
    learned = [(trial.params, trial.values, trial.user_attrs) for trial in study_of(searcher).trials] if not why else []
    assert learned == ([] if why else [({"u": 0.5, "c": "a"}, [1.0], {"trial_id": "old"})])


def test_several_objectives_are_learned_together() -> None:
    searcher = make(metric=["loss", "time"], mode=["min", "max"], run_space=SMALL)
    assert searcher.learn_from(earlier("old", {"u": 0.5, "c": "a"}, loss=1.0)) == "old has no loss and time"
    assert searcher.learn_from(earlier("old", {"u": 0.5, "c": "a"}, loss=1.0, time=2.0)) is None
    assert study_of(searcher).trials[0].values == [1.0, 2.0]


def test_of_a_function_is_learned_what_it_would_have_asked_for() -> None:
    searcher = make(run_space=by_run)
    good = {"kind": "deep", "model": {"depth": 3}, "u": 0.5, "constant": 3}
    assert searcher.learn_from(earlier("one", good, loss=1.0)) is None
    why = "two: the function asks for what its config does not have"
    assert searcher.learn_from(earlier("two", {"kind": "deep", "u": 0.5}, loss=1.0)) == why
    assert [trial.params for trial in study_of(searcher).trials] == [{"kind": "deep", "model/depth": 3, "u": 0.5}]


def test_a_storage_that_has_a_trial_already_does_not_get_it_twice(tmp_path: Any) -> None:
    def opened() -> Searcher:
        backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.log"))
        return make(storage=optuna.storages.JournalStorage(backend), run_space=SMALL)

    for _ in range(2):
        searcher = opened()
        assert searcher.learn_from(earlier("old", {"u": 0.5, "c": "a"}, loss=1.0)) is None
        assert len(study_of(searcher).trials) == 1


def test_a_function_cannot_be_told_of_points() -> None:
    searcher: Any = make(run_space=by_run).unwrapped  # type: ignore[attr-defined]
    with pytest.raises(SettingError, match="evaluated points need a dict as space"):
        searcher.add_evaluated_point({"u": 0.5}, 1.0)


@pytest.mark.parametrize(
    ("named", "state"), [({}, "COMPLETE"), ({"error": True}, "FAIL"), ({"pruned": True, "value": 3.0}, "PRUNED")]
)
def test_how_a_point_of_elsewhere_ended(named: Any, state: str) -> None:
    searcher: Any = make(run_space=SMALL).unwrapped  # type: ignore[attr-defined]
    searcher.add_evaluated_point({"u": 0.5}, **{"value": 3.0, **named})
    (trial,) = study_of(searcher).trials
    assert (trial.state.name, trial.params) == (state, {"u": 0.5})
    with pytest.raises(SettingError, match="'v' is not in the search space"):
        searcher.add_evaluated_point({"v": 0.5}, 1.0)


@pytest.mark.parametrize(
    ("searcher", "message"),
    [
        (OptunaSearch(metric="loss", mode="min"), "no search space: give it a space"),
        (OptunaSearch(SMALL, mode="min"), "needs metric= and mode="),
        (OptunaSearch(SMALL, metric="loss"), "needs metric= and mode="),
    ],
)
def test_what_is_missing_is_told_when_the_study_is_needed(searcher: OptunaSearch, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        searcher.suggest("t")


# --- what comes late, and what a state holds


def test_a_result_after_the_end_changes_nothing() -> None:
    searcher = make(run_space=SMALL)
    searcher.suggest("t")
    finish(searcher, "t", 1.0)
    searcher.on_trial_result("t", {"training_iteration": 2, "loss": 5.0})
    searcher.on_trial_complete("t", {"training_iteration": 2, "loss": 5.0})
    (trial,) = study_of(searcher).trials
    assert (trial.value, trial.intermediate_values) == (1.0, {1: 1.0})


def test_results_without_an_iteration_are_counted() -> None:
    searcher = make(run_space=SMALL)
    searcher.suggest("t")
    for loss in (3.0, 2.0):
        searcher.on_trial_result("t", {"loss": loss})
    assert study_of(searcher).trials[0].intermediate_values == {0: 3.0, 1: 2.0}


def test_a_state_brings_the_study_and_the_samplers_random_state() -> None:
    def fresh() -> Searcher:
        return make(run_space=SMALL, sampler=optuna.samplers.RandomSampler(seed=1))

    first, again = fresh(), fresh()
    before = [first.suggest(f"t{number}") for number in range(3)]
    finish(first, "t0", 2.0)
    again.set_state(cloudpickle.loads(cloudpickle.dumps(first.get_state())))
    assert study_of(again).trials == study_of(first).trials
    assert again.suggest("t3") == first.suggest("t3") not in before
    finish(again, "t1", 1.0)
    assert [trial.state.name for trial in study_of(again).trials] == ["COMPLETE", "COMPLETE", "RUNNING", "RUNNING"]
    assert [trial.state.name for trial in study_of(first).trials][1] == "RUNNING", "it is a copy"


def test_a_state_of_a_storage_of_the_users_holds_none_of_it(tmp_path: Any) -> None:
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.log"))
    searcher = make(storage=optuna.storages.JournalStorage(backend), run_space=SMALL)
    searcher.suggest("t")
    state = searcher.unwrapped.get_state()  # type: ignore[attr-defined]
    assert state["storage"] is None and state["sampler"] is None
