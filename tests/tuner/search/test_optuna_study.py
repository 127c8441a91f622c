"""Studies, their storages and samplers: Optuna's logging, and samplers that have been everywhere."""

from __future__ import annotations

import copy
import logging
import pickle
import subprocess
import sys
from typing import Any

import cloudpickle
import optuna
import pytest

import tuner as tune
from tests.tuner.search.optuna_harness import drive, make
from tuner.error import SettingError
from tuner.search import Searcher, as_searcher
from tuner.search.optuna import OptunaSearch


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
