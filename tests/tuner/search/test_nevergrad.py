"""Nevergrad's optimizers under our adapter."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import tuner as tune
from tests.tuner.search.library_harness import BRANCHED, Life, check_config, check_prefixes, opened
from tuner.error import SettingError
from tuner.search.nevergrad import NevergradSearch
from tuner.testing import check_searcher

pytestmark = pytest.mark.peers


def ng() -> Any:
    return importlib.import_module("nevergrad")


def make(optimizer: Any = None, **kwargs: Any) -> NevergradSearch:
    return NevergradSearch(optimizer, **{"metric": "loss", "mode": "min", **kwargs})


def own_spaces() -> dict[str, Any]:
    p = ng().p
    inside = {"x": p.Scalar(lower=0, upper=1), "c": p.Choice(["a", "b"])}
    return {"dict": p.Dict(**inside), "instrumentation": p.Instrumentation(**inside)}


def test_it_meets_the_obligations_of_a_searcher() -> None:
    check_searcher(NevergradSearch)


@pytest.mark.parametrize("optimizer", ["OnePlusOne", "CMA", "TwoPointsDE"])
def test_cut_anywhere_it_goes_on_with_the_same_suggestion(optimizer: str) -> None:
    check_prefixes(lambda: make(optimizer), BRANCHED, trials=9)


@pytest.mark.parametrize("form", ["dict", "instrumentation"])
def test_its_own_form_of_a_space(form: str) -> None:
    point = {"x": 0.5, "c": "b"}
    check_prefixes(lambda: make("CMA", space=own_spaces()[form], points_to_evaluate=[point]), {"k": 1}, trials=6)
    assert opened(make(space=own_spaces()[form], points_to_evaluate=[point])).suggest("a") == point


def test_an_optimizer_that_was_made_with_names_for_its_values() -> None:
    made = ng().optimizers.OnePlusOne(2, budget=20)
    check_prefixes(lambda: make(made, space=["x", "m/y"], points_to_evaluate=[{"x": 0.5, "m": {"y": 0.1}}]), trials=6)
    assert made.num_ask == 0, "it is copied"


def test_every_suggestion_is_valid() -> None:
    life = Life(opened(make("TwoPointsDE"), BRANCHED))
    for _ in range(30):
        life.step()
        check_config(BRANCHED, life.configs[-1])


def test_results_and_failures_are_told() -> None:
    searcher: Any = opened(make(mode="max"), {"x": tune.uniform(0, 1)})
    for name in "abcd":
        searcher.suggest(name)
    searcher.on_trial_complete("a", {"loss": 1.0})
    searcher.on_trial_complete("b", {"loss": 3.0})
    searcher.on_trial_complete("c", error=True)
    searcher.on_trial_complete("d", {"loss": float("nan")})
    optimizer = searcher.unwrapped._live()._optimizer
    assert optimizer.num_tell == 4 and optimizer.provide_recommendation().loss == -3.0
    assert sorted(each.mean for each in optimizer.archive.values()) == [-3.0, -1.0, -1.0, -1.0]


def test_it_learns() -> None:
    searcher, found = opened(make("CMA"), {"x": tune.uniform(0, 1), "y": tune.loguniform(1e-4, 1)}), []
    for number in range(60):
        config: Any = searcher.suggest(f"t{number}")
        found.append(abs(config["x"] - 0.3) + abs(config["y"] - 0.01))
        searcher.on_trial_complete(f"t{number}", {"loss": found[-1]})
    assert sum(found[40:]) < sum(found[:20]) / 2


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: make("OnePlusTwo"), "did you mean"),
        (lambda: make(3), "optimizer=3 is not accepted; it is one of nevergrad.optimizers"),
        (lambda: make(space={"g": tune.grid_search([1, 2])}), "NevergradSearch cannot search the grid_search at 'g'"),
        (lambda: make(space=ng().p.Scalar()), r"it has names: ng\.p\.Dict\(x="),
        (lambda: make(ng().optimizers.OnePlusOne(2), space=["x"]), "it names each of 2 values"),
        (lambda: make(space=own_spaces()["dict"], points_to_evaluate=[{"x": 1}]), "a value for each of x, c"),
        (
            lambda: make(space=own_spaces()["dict"], points_to_evaluate=[{"zz": 3}]),
            "zz=3 is not in the search",
        ),
        (lambda: make(space=own_spaces()["dict"], points_to_evaluate=[{"x": 1, "c": "z"}]), "is not accepted"),
    ],
)
def test_what_does_not_fit_is_said_when_the_searcher_is_made(make_it: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make_it()
