"""SMAC's models under our adapter."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import tuner as tune
from tests.tuner.search.library_harness import BRANCHED, Life, check_config, check_prefixes, opened
from tuner.error import SettingError
from tuner.search.smac import SMACSearch

pytestmark = pytest.mark.peers

SMALL = {
    "lr": tune.loguniform(1e-4, 1),
    "opt": tune.choice([{"kind": "adam"}, {"kind": "sgd", "mu": tune.uniform(0, 1)}]),
    "n": tune.lograndint(1, 64),
}


def make(space: Any = None, **kwargs: Any) -> SMACSearch:
    return SMACSearch(space, **{"metric": "loss", "mode": "min", "n_initial_points": 3, **kwargs})


def own_space() -> Any:
    return importlib.import_module("ConfigSpace").ConfigurationSpace({"x": (0.0, 1.0), "a/n": (1, 50), "c": ["p", "q"]})


def test_cut_anywhere_it_goes_on_with_the_same_suggestion() -> None:
    check_prefixes(make, SMALL, trials=5)


def test_its_own_form_of_a_space() -> None:
    point = {"x": 0.5, "a": {"n": 2}, "c": "q"}
    check_prefixes(lambda: make(own_space(), points_to_evaluate=[point]), {"k": 1}, trials=5)
    assert opened(make(own_space(), points_to_evaluate=[point])).suggest("a") == point


def test_every_suggestion_is_valid() -> None:
    life = Life(opened(make(n_initial_points=12), BRANCHED))
    for _ in range(14):
        life.step()
        check_config(BRANCHED, life.configs[-1])


def test_results_and_failures_are_told() -> None:
    searcher: Any = opened(make(mode="max"), SMALL)
    for name in "abc":
        searcher.suggest(name)
    searcher.on_trial_complete("a", {"loss": 1.0})
    searcher.on_trial_complete("b", error=True)
    assert searcher.unwrapped._live()._values == {0: -1.0, 1: None}
    assert isinstance(searcher.suggest("d"), dict)


@pytest.mark.parametrize("model", ["forest", "process"])
def test_it_learns(model: str) -> None:
    searcher, found = opened(make(model=model, n_initial_points=5), {"x": tune.uniform(0, 1)}), []
    for number in range(12):
        config: Any = searcher.suggest(f"t{number}")
        found.append(abs(config["x"] - 0.3))
        searcher.on_trial_complete(f"t{number}", {"loss": found[-1]})
    assert min(found[5:]) < min(0.03, min(found[:5]))


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: make({"g": tune.grid_search([1, 2])}), "SMACSearch cannot search the grid_search at 'g'"),
        (lambda: make(own_space(), points_to_evaluate=[{"x": 0.5}]), "points_to_evaluate: .* is not accepted"),
        (
            lambda: make(own_space(), points_to_evaluate=[{"zz": 3}]),
            "zz=3 is not in the search",
        ),
        (lambda: make(model="tree"), "model='tree' is not accepted; it is 'forest' or 'process'"),
    ],
)
def test_what_does_not_fit_is_said_when_the_searcher_is_made(make_it: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make_it()
