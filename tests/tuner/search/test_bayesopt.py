"""Gaussian processes of bayesian-optimization under our adapter."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings

import tuner as tune
from tests.tuner.search.library_harness import check_config, check_prefixes, loss_of, opened, spaces
from tuner.error import SettingError
from tuner.search import Searcher
from tuner.search.bayesopt import BayesOptSearch, _from_cube, _to_cube
from tuner.search.dimensions import DimensionSpace

pytest.importorskip("bayes_opt", reason="bayesian-optimization is not installed: pip install bayesian-optimization")

SMALL = {"lr": tune.loguniform(1e-4, 1), "m": {"n": tune.randint(0, 9)}, "c": tune.choice(["a", None])}


def make(space: Any = None, **kwargs: Any) -> BayesOptSearch:
    return BayesOptSearch(space, **{"random_search_steps": 3, "metric": "loss", "mode": "min", **kwargs})


@settings(max_examples=8, deadline=None)
@given(spaces(branches=False))
def test_every_suggestion_is_valid(space: dict[str, Any]) -> None:
    searcher = opened(make(random_search_steps=2), space)
    for number in range(3):
        config = searcher.suggest(f"t{number}")
        check_config(space, config)
        searcher.on_trial_complete(f"t{number}", {"loss": loss_of(config), "training_iteration": 1})


@given(spaces(branches=False))
def test_a_point_in_the_cube_is_the_point(space: dict[str, Any]) -> None:
    whole = DimensionSpace(space, "it")
    dimensions = list(whole.dimensions.values())
    point = whole.point(whole.config({}, "key"))
    cube = _to_cube(dimensions, point)
    assert all(-1e-9 <= each <= 1 + 1e-9 for each in cube)
    assert _from_cube(dimensions, cube) == pytest.approx(point)


def test_cut_anywhere_it_goes_on_with_the_same_suggestion() -> None:
    check_prefixes(make, SMALL, trials=7)


def test_trials_at_once_are_given_different_configs() -> None:
    searcher = opened(make(), {"x": tune.uniform(0, 1)})
    for name in "abcd":
        searcher.on_trial_complete(name, {"loss": abs(searcher.suggest(name)["x"] - 0.3)})  # type: ignore[index]
    together = [searcher.suggest(str(number))["x"] for number in range(4)]  # type: ignore[index]
    assert min(abs(a - b) for i, a in enumerate(together) for b in together[:i]) > 1e-3


@pytest.mark.parametrize("skip", [True, False])
def test_the_search_ends_where_there_is_nothing_new(skip: bool, caplog: pytest.LogCaptureFixture) -> None:
    searcher = opened(make(patience=2, skip_duplicate=skip), {"x": tune.randint(0, 3)})
    found = []
    while (config := searcher.suggest(f"t{len(found)}")) != Searcher.FINISHED:
        assert isinstance(config, dict)
        found.append(config["x"])
        searcher.on_trial_complete(f"t{len(found) - 1}", {"loss": config["x"]})
    assert max(map(found.count, found)) == (1 if skip else 2)
    assert "had been made before (patience=" in caplog.text


def test_its_own_form_of_a_space() -> None:
    searcher = opened(make({"a/x": (0, 20), "n": (1, 4, int), "c": ("p", "q")}))
    config = searcher.suggest("a")
    assert isinstance(config, dict) and 0 <= config["a"]["x"] <= 20
    assert config["n"] in (1, 2, 3, 4) and config["c"] in ("p", "q")


@pytest.mark.parametrize(
    "utility", [{"kind": "ei", "xi": 0.1}, {"kind": "poi", "xi": 0.1}, {"kappa": 1, "kappa_decay": 0.9}]
)
def test_utilities(utility: Any) -> None:
    searcher = opened(make(utility_kwargs=utility, random_search_steps=1), {"x": tune.uniform(0, 1)})
    for name in "ab":
        searcher.on_trial_complete(name, {"loss": searcher.suggest(name)["x"]})  # type: ignore[index]
    check_config({"x": tune.uniform(0, 1)}, searcher.suggest("c"))


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: make({"c": tune.choice([{"z": tune.uniform(0, 1)}, 3])}), r"'c\[0\]/z', uniform.* choice at 'c'"),
        (lambda: make({"x": (3, 1)}), r"space\['x'\]=\(3, 1\) is not accepted; low is below high"),
        (lambda: make({"x": 3}), r"space\['x'\]=3 is not accepted; it is a pair"),
        (lambda: make(utility_kwargs={"kind": "ucbb"}), "it is 'ucb', 'ei' or 'poi'"),
        (lambda: make(utility_kwargs={"kapa": 1}), "it has kind, kappa, xi"),
        (lambda: make(patience=0), "patience=0"),
    ],
)
def test_what_does_not_fit_is_said_when_the_searcher_is_made(make_it: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make_it()


def test_what_it_suggests_follows_from_what_it_was_told() -> None:
    def suggested(mode: str, sign: int) -> list[Any]:
        space = {"x": tune.uniform(0, 1), "y": tune.loguniform(1e-4, 1)}
        searcher, found = opened(make(mode=mode), space), []
        for number in range(7):
            config = searcher.suggest(f"t{number}")
            assert isinstance(config, dict)
            loss = (config["x"] - 0.3) ** 2 + (math.log10(config["y"]) / 4 + 0.6) ** 2
            found.append(config)
            searcher.on_trial_complete(f"t{number}", {"loss": sign * loss})
        return found

    least, same, most = suggested("min", 1), suggested("max", -1), suggested("max", 1)
    assert least == same and least[:3] == most[:3], "the initial points are told nothing"
    assert least[3:] != most[3:]
