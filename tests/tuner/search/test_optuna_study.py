"""Studies, their storages and samplers: Optuna's logging, and samplers that have been everywhere."""

from __future__ import annotations

import copy
import logging
import math
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import optuna
import pytest

import tuner as tune
from tests.tuner.search.optuna_harness import drive, make
from tuner.error import SettingError
from tuner.search import Searcher, as_searcher
from tuner.search.optuna import OptunaSearch
from tuner.search.optuna_study import (
    TRIAL_ID,
    begin,
    checked_names_of_metrics,
    checked_sampler,
    constrain,
    end_state,
    grid_is_taken,
    in_memory,
    insert,
    open_study,
    optuna_id,
    quiet,
    refuse_other_space,
    states,
)


def test_optunas_logging_stays_as_the_user_set_it() -> None:
    handlers = list(logging.getLogger().handlers)
    before = optuna.logging.get_verbosity()
    drive(make(), 2)
    assert optuna.logging.get_verbosity() == before
    assert logging.getLogger().handlers == handlers


def test_f52_nothing_is_printed() -> None:
    script = (
        "import tuner as tune\n"
        "from tuner.search import as_searcher\n"
        "from tuner.search.optuna import OptunaSearch\n"
        "searcher = as_searcher(OptunaSearch(), {'x': tune.uniform(0, 1)}, metric='a', mode='min', num_samples=3)\n"
        "searcher.suggest('t')\n"
        "searcher.on_trial_complete('t', {'a': 1.0, 'training_iteration': 1})\n"
        "searcher.set_state(searcher.get_state())\n"
        "searcher.suggest('u')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


GRID_SPACE = {"x": tune.choice([1, 2, 3]), "y": tune.choice([0.5, 0.7])}


def play_out(searcher: Searcher, at_once: int, limit: int = 30) -> list[dict[str, Any]]:
    """The configs of a searcher until it is finished, with so many trials unfinished at a time."""
    configs: list[dict[str, Any]] = []
    live: list[str] = []
    while len(configs) < limit:
        suggestion = searcher.suggest(f"t{len(configs)}")
        if suggestion == Searcher.FINISHED:
            return configs
        assert isinstance(suggestion, dict)
        configs.append(suggestion)
        live.append(f"t{len(configs) - 1}")
        if len(live) == at_once:
            name = live.pop(0)
            searcher.on_trial_complete(name, {"loss": 1.0, "training_iteration": 1}, error=name == "t1")
    return configs


@pytest.mark.parametrize("at_once", [1, 4, 100])
def test_a_grid_sampler_that_has_been_everywhere_is_finished(at_once: int) -> None:
    sampler = optuna.samplers.GridSampler({"x": [1, 2, 3], "y": [0.5, 0.7]}, seed=3)
    searcher = as_searcher(OptunaSearch(sampler=sampler), GRID_SPACE, num_samples=-1, metric="loss", mode="min")
    configs = play_out(searcher, at_once)
    assert sorted((config["x"], config["y"]) for config in configs) == [(x, y) for x in (1, 2, 3) for y in (0.5, 0.7)]


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_brute_force_sampler_that_has_been_everywhere_is_finished() -> None:
    sampler = optuna.samplers.BruteForceSampler(seed=3)
    searcher = as_searcher(OptunaSearch(sampler=sampler), GRID_SPACE, num_samples=-1, metric="loss", mode="min")
    assert len(play_out(searcher, 1)) == 6
    again = as_searcher(
        OptunaSearch(sampler=optuna.samplers.BruteForceSampler(seed=3)),
        GRID_SPACE,
        num_samples=-1,
        metric="loss",
        mode="min",
    )
    again.set_state(cloudpickle.loads(cloudpickle.dumps(searcher.get_state())))
    assert again.suggest("later") == Searcher.FINISHED


def test_the_password_of_a_database_is_not_pickled_and_asked_for_again() -> None:
    search = OptunaSearch({"x": tune.uniform(0, 1)}, metric="loss", mode="min", storage="postgresql://me:hunter2@db/x")
    stored = cloudpickle.dumps(search)
    assert b"hunter2" not in stored
    with pytest.raises(SettingError, match=r"me:\*\*\*@db.*give the search_alg again.*PGPASSWORD"):
        cloudpickle.loads(stored).suggest("a")
    assert b"hunter2" in pickle.dumps(copy.deepcopy(search).__dict__["_given_storage"])


# --- arguments


def test_a_sampler_is_one_of_optunas_and_brings_its_own_seed() -> None:
    sampler = optuna.samplers.RandomSampler(seed=1)
    assert checked_sampler(sampler, None) is sampler
    assert checked_sampler(None, 3) is None and checked_sampler(None, None) is None
    with pytest.raises(SettingError, match="seed=3 has no effect on a given sampler; give it to RandomSampler itself"):
        checked_sampler(sampler, 3)
    for wrong in (optuna.samplers.RandomSampler, "tpe", 3):
        with pytest.raises(SettingError, match="sampler=.*it is one of optuna.samplers, made"):
            checked_sampler(wrong, None)
    for seed in ("a", 1.5, True):
        with pytest.raises(SettingError, match="seed="):
            checked_sampler(None, seed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "names"), [("a", ("a",)), ([], ()), (("a", "b"), ("a", "b")), (["a"], ("a",)), ("", ("",))]
)
def test_one_name_or_several(given: Any, names: tuple[str, ...]) -> None:
    assert checked_names_of_metrics("constraints", given) == names


@pytest.mark.parametrize("given", [None, 3, {"a": 1}, ["a", 1], [None]])
def test_what_is_no_name_is_refused(given: Any) -> None:
    with pytest.raises(SettingError, match="constraints=.*it is the name of a metric, or a list of names"):
        checked_names_of_metrics("constraints", given)


def test_which_storages_end_with_the_process(tmp_path: Path) -> None:
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.log"))
    assert in_memory(optuna.storages.InMemoryStorage())
    assert not any(map(in_memory, (None, "sqlite://", optuna.storages.JournalStorage(backend))))


# --- studies


def study(*modes: str, sampler: Any = None, storage: Any = None, name: str = "s") -> optuna.Study:
    return open_study(storage, name, sampler, modes or ("min",))


def test_a_study_is_made_once_and_found_again_in_its_storage() -> None:
    storage = optuna.storages.InMemoryStorage()
    first = study("min", "max", storage=storage)
    first.add_trial(optuna.trial.create_trial(values=[1.0, 2.0]))
    again = study("min", "max", storage=storage)
    assert [direction.name for direction in again.directions] == ["MINIMIZE", "MAXIMIZE"]
    assert [trial.values for trial in again.trials] == [[1.0, 2.0]]
    assert study("min", storage=storage, name="other").trials == []


def test_optunas_level_comes_back_also_after_an_error() -> None:
    before = optuna.logging.get_verbosity()
    try:
        optuna.logging.set_verbosity(optuna.logging.DEBUG)
        with pytest.raises(KeyError), quiet():
            assert optuna.logging.get_verbosity() == optuna.logging.WARNING
            raise KeyError
        assert optuna.logging.get_verbosity() == optuna.logging.DEBUG
        with quiet(optuna.logging.ERROR):
            assert optuna.logging.get_verbosity() == optuna.logging.ERROR
        optuna.logging.set_verbosity(optuna.logging.CRITICAL)
        with quiet():
            assert optuna.logging.get_verbosity() == optuna.logging.CRITICAL, "not louder than the user has it"
    finally:
        optuna.logging.set_verbosity(before)


def test_a_trial_is_put_in_as_it_is_without_asking_the_sampler() -> None:
    made = study(sampler=optuna.samplers.GridSampler({"x": [1]}))
    assert insert(made, state=states().RUNNING, params={}, distributions={}) == 0
    number = insert(made, values=[3.0], params={}, distributions={}, user_attrs={TRIAL_ID: "b"})
    assert number == 1 and made.trials[1].user_attrs == {TRIAL_ID: "b"} and made.trials[1].value == 3.0
    assert made._storage.get_trial(optuna_id(made, 1)).number == 1


@pytest.mark.parametrize(
    ("values", "error", "reported", "state"),
    [
        ([1.0], False, False, "COMPLETE"),
        ([1.0, math.inf], False, False, "COMPLETE"),
        ([1.0], True, True, "FAIL"),
        ([math.nan], False, True, "FAIL"),
        ([None, math.nan], False, True, "FAIL"),
        ([None], False, True, "PRUNED"),
        ([None], False, False, "FAIL"),
        ([1.0, None], False, True, "PRUNED"),
        ([], False, False, "COMPLETE"),
    ],
)
def test_how_a_trial_with_these_values_has_ended(values: Any, error: bool, reported: bool, state: str) -> None:
    assert end_state(values, error=error, reported=reported).name == state


def test_a_sampler_that_cannot_search_here_is_named() -> None:
    assert begin(study()).number == 0
    with pytest.raises(SettingError, match="CmaEsSampler cannot search here: .*multi-objective"):
        begin(study("min", "min", sampler=optuna.samplers.CmaEsSampler(seed=1)))


def test_a_grid_is_taken_when_every_combination_was_given_out() -> None:
    sampler = optuna.samplers.GridSampler({"x": [1, 2], "y": [0]}, seed=1)
    made = study(sampler=sampler)
    assert not grid_is_taken(None, made) and not grid_is_taken(optuna.samplers.RandomSampler(), made)
    for _ in range(2):
        assert not grid_is_taken(sampler, made)
        trial = begin(made)
        trial.suggest_categorical("x", [1, 2])
        trial.suggest_categorical("y", [0])
    assert grid_is_taken(sampler, made), "both still run"


@pytest.mark.parametrize(
    ("result", "wanted"),
    [
        ({"size": -1.0, "deep": {"time": 2}}, [-1.0, 2.0]),
        ({"size": 0}, [0.0, math.inf]),
        ({"size": math.nan, "deep/time": "x"}, [math.inf, math.inf]),
    ],
)
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_constraints_are_those_of_the_result_and_a_missing_one_is_not_met(result: Any, wanted: list[float]) -> None:
    made = study()
    trial = begin(made)
    constrain(made, trial._trial_id, result, ["size", "deep/time"])
    assert list(made.trials[0].constraints.values()) == wanted
    assert isinstance(made.sampler, optuna.samplers.RandomSampler)


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_setting_constraints_asks_the_sampler_nothing() -> None:
    class Asked(optuna.samplers.RandomSampler):
        def before_trial(self, study: Any, trial: Any) -> None:
            raise AssertionError("a trial began")

    made = study()
    trial = begin(made)
    made.sampler = sampler = Asked()
    constrain(made, trial._trial_id, {"size": 1}, ["size"])
    assert made.sampler is sampler
    constrain(made, trial._trial_id, {}, [])
    assert list(made.trials[0].constraints.values()) == [1.0]


# --- a study that several runs share ------------------------------------------------------------------------------


def shared(storage: Any, space: Any, mode: str | list[str] = "min") -> Any:
    metric = "a" if isinstance(mode, str) else ["a", "b"]
    searcher = OptunaSearch(storage=storage, study_name="shared", seed=1)
    return as_searcher(searcher, space, metric=metric, mode=mode, num_samples=3)


def shared_storage(tmp_path: Path) -> Any:
    return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(tmp_path / "study")))


def by_function(choices: list[Any]) -> Any:
    return lambda trial: {"loss": trial.suggest_categorical("loss", choices)}


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (
            {"model": {"loss": tune.choice(["nll", "margin"])}},
            "has trials with 'model/loss': choice(['mse', 'l1']); this run has 'model/loss': choice(['nll', 'margin'])",
        ),
        (
            {"model": {"loss": tune.uniform(0, 1)}},
            "has trials with 'model/loss': choice(['mse', 'l1']); this run has 'model/loss': FloatDistribution(high=",
        ),
    ],
)
def test_a_study_with_other_choices_is_refused_before_anything_is_asked(space: Any, said: str, tmp_path: Path) -> None:
    storage = shared_storage(tmp_path)
    shared(storage, {"model": {"loss": tune.choice(["mse", "l1"])}}).suggest("t")

    with pytest.raises(SettingError) as refused:
        shared(storage, space)
    message = str(refused.value)
    assert message.startswith(f"the study 'shared' in storage=JournalStorage {said}")
    assert message.endswith("give the same ones, or another study_name=")
    assert len(optuna.load_study(study_name="shared", storage=storage).trials) == 1
    assert isinstance(shared(storage, {"model": {"loss": tune.choice(["mse", "l1"])}}).suggest("u"), dict)
    assert isinstance(shared(storage, {"x": tune.uniform(0, 1)}).suggest("v"), dict), "other names are no clash"


def test_a_define_by_run_function_that_asks_for_other_choices_is_refused_by_name(tmp_path: Path) -> None:
    storage = shared_storage(tmp_path)
    first = shared(storage, by_function(["mse", "l1"]))
    first.suggest("t")
    with pytest.raises(SettingError) as refused:
        shared(storage, by_function(["nll", "margin"])).suggest("u")
    assert str(refused.value).startswith(
        "the study 'shared' in storage=JournalStorage has trials with 'loss': choice(['mse', 'l1']); this run has "
        "'loss': choice(['nll', 'margin']). In one study"
    )


@pytest.mark.parametrize(("mode", "objectives"), [("max", "maximize"), (["min", "max"], "minimize, maximize")])
def test_a_study_with_other_objectives_is_refused(mode: str | list[str], objectives: str, tmp_path: Path) -> None:
    storage = shared_storage(tmp_path)
    shared(storage, {"x": tune.uniform(0, 1)}).suggest("t")
    with pytest.raises(SettingError, match=f"has the objectives minimize; this run has {objectives}[.] Give metric="):
        shared(storage, {"x": tune.uniform(0, 1)}, mode)


def test_a_password_of_the_storage_is_not_printed() -> None:
    study = optuna.create_study(study_name="shared")
    study.ask({"x": optuna.distributions.CategoricalDistribution([1, 2])})
    with pytest.raises(SettingError) as refused:
        refuse_other_space(
            study, "postgresql://me:secret@db/x", {"x": optuna.distributions.CategoricalDistribution([3])}
        )
    assert "storage='postgresql://me:" in str(refused.value) and "secret" not in str(refused.value)
