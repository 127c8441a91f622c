"""Ax's models under our adapter. A suggestion of the model takes a second, so that there are few."""

from __future__ import annotations

from typing import Any

import pytest

import tuner as tune
from tests.tuner.search.library_harness import FLAT, Life, check_config, check_prefixes, learned, opened
from tuner.error import SettingError
from tuner.search import Searcher, create_searcher
from tuner.search.ax import AxSearch

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

SMALL = {"m": {"lr": tune.loguniform(1e-4, 1)}, "n": tune.randint(1, 9), "c": tune.choice(["a", None])}
OWN = [
    {"name": "m/x", "type": "range", "bounds": [0.0, 1.0]},
    {"name": "n", "type": "range", "bounds": [1, 5]},
    {"name": "x", "type": "range", "bounds": [0.01, 1], "log_scale": True, "value_type": "float"},
    {"name": "c", "type": "choice", "values": ["p", "q"]},
    {"name": "k", "type": "fixed", "value": 3},
]
LIMIT = ["m/x + n <= 2.5"]


def make(space: Any = None, **kwargs: Any) -> AxSearch:
    return AxSearch(space, **{"metric": "loss", "mode": "min", "n_initial_points": 3, **kwargs})


def test_cut_anywhere_it_goes_on_with_the_same_suggestion() -> None:
    check_prefixes(make, SMALL, trials=6)


def test_every_suggestion_is_valid() -> None:
    life = Life(opened(make(n_initial_points=10), FLAT))
    for _ in range(11):
        life.step()
        check_config(FLAT, life.configs[-1])


def test_its_own_form_of_a_space_and_constraints() -> None:
    point = {"m": {"x": 0.5}, "n": 2, "x": 0.1, "c": "q"}
    searcher = opened(make(OWN, parameter_constraints=LIMIT, points_to_evaluate=[point], n_initial_points=9))
    assert searcher.suggest("t0") == point | {"k": 3}
    for number in range(1, 6):
        config: Any = searcher.suggest(f"t{number}")
        assert config["m"]["x"] + config["n"] <= 2.5 + 1e-6
        assert type(config["n"]) is int and config["c"] in ("p", "q") and config["k"] == 3


def test_it_learns() -> None:
    assert learned(make(n_initial_points=5), 13) < 2.5


def test_the_best_of_max_is_the_greatest() -> None:
    points = [{"x": number / 8} for number in range(9)]
    rewards = [-((each["x"] - 0.3) ** 2) for each in points]
    searcher = opened(make(mode="max", points_to_evaluate=points, evaluated_rewards=rewards), {"x": tune.uniform(0, 1)})
    config: Any = searcher.suggest("a")
    assert config["x"] == pytest.approx(0.3, abs=0.1)


def test_results_are_told_and_a_point_that_failed_is_not_tried_again() -> None:
    searcher = opened(make(n_initial_points=2), {"c": tune.choice(["a", "b", "c"])})
    tried: list[Any] = []
    for name in "xyz":
        tried.append(searcher.suggest(name))
        searcher.on_trial_complete(name, {"loss": 1.0}, error=name != "x")
    assert sorted(each["c"] for each in tried) == ["a", "b", "c"]
    assert searcher.suggest("end") == Searcher.FINISHED


def test_a_resume_under_another_constraint_goes_on() -> None:
    space = {"x": tune.uniform(0, 1), "y": tune.uniform(0, 1)}
    before = opened(make(space))
    for name in "abc":
        config: Any = before.suggest(name)
        before.on_trial_complete(name, {"loss": -config["x"]})
    after = opened(make(space, parameter_constraints=["x + y <= 0.6"]))
    after.set_state(before.get_state())
    config = after.suggest("d")
    assert config["x"] + config["y"] <= 0.6 + 1e-6


def test_it_has_a_name() -> None:
    assert isinstance(create_searcher("ax", metric="loss", mode="min", seed=1), AxSearch)


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: make({"c": tune.choice([{"z": tune.uniform(0, 1)}, 3])}), r"AxSearch cannot search 'c\[0\]/z'"),
        (lambda: make({"g": tune.grid_search([1, 2])}), "AxSearch cannot search the grid_search at 'g'"),
        (lambda: make(7), "AxSearch: space=7 is not accepted"),
        (lambda: make([{"name": "x", "type": "rang"}]), "'rang'} is not accepted; it is"),
        (lambda: make([{"name": "x", "type": "range", "bounds": [0, 1], "digits": 3}]), "'digits': 3} is not accepted"),
        (lambda: make(SMALL, parameter_constraints=["m/lr <= 1"]), "='m/lr' is not accepted; they are of .*: n$"),
        (lambda: make(SMALL, parameter_constraints=["2*m <= 1"]), "parameter_constraints='m' is not accepted"),
        (lambda: make(FLAT, parameter_constraints=["qu + u <= 1e-1"]), "='qu' is not accepted; .*: u, i, list/0"),
        (lambda: make(SMALL, parameter_constraints=["n*n <= 9"]), "'n\\*n <= 9' is not accepted; it is a linear"),
        (
            lambda: make(OWN, parameter_constraints=LIMIT, points_to_evaluate=[{"m/x": 1, "n": 5, "x": 1, "c": "p"}]),
            "'n': 5.* does not meet the parameter_constraints",
        ),
        (lambda: make(OWN, parameter_constraints=LIMIT, points_to_evaluate=[{"n": 1}]), "it has no m"),
        (lambda: make(outcome_constraints=["a <= 1"]), r"OptunaSearch\(constraints=\)"),
        (lambda: make(ax_client=object()), "a client is made for each suggestion"),
    ],
)
def test_what_does_not_fit_is_said_when_the_searcher_is_made(make_it: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make_it()
