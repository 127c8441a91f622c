"""Search spaces as Optuna's distributions, and configs as its parameters."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

import tuner as tune
from tests.tuner.search.optuna_harness import SPACE, by_run, drive, make
from tuner.error import SettingError
from tuner.search import as_searcher
from tuner.search.domains import describe
from tuner.search.fitting import fits, misfit, nested
from tuner.search.optuna_space import (
    AskDraw,
    Given,
    check_searchable,
    config_of_function,
    distribution_of,
    first_function,
    params_of_function,
    plain_result,
    read,
    wrapped,
)
from tuner.search.resolve import HashDraw, Space


def test_every_domain_is_searched_within_its_bounds() -> None:
    seen = set()
    for config in drive(make(), 40):
        for key in ("u", "qu", "lu", "qlu", "n", "qn", "i", "qi", "li", "qli", "c", "objects", "same", "branch"):
            if key not in ("branch", "objects"):
                assert SPACE[key].is_valid(config[key]), (key, config[key])
        assert config["function"] == config["u"] * 2
        assert config["constant"] == 17
        assert config["objects"] in ({"k": 1}, [2, 3], len)
        assert type(config["list"][1]) is tuple and config["list"][1][0] == "fixed"
        assert config["qi"] in (4, 8, 12, 16, 20)
        assert config["qu"] in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
        branch = config["branch"]
        seen.add(branch["kind"])
        assert branch == {"kind": "x"} or 5 <= branch["deep"]["z"] <= 6
    assert seen == {"x", "y"}


def test_optunas_own_distributions() -> None:
    space = {
        "a": optuna.distributions.FloatDistribution(0, 1, step=0.25),
        "b/c": optuna.distributions.IntDistribution(1, 8, log=True),
        "d": {"e": optuna.distributions.CategoricalDistribution(["x", "y"]), "fixed": 3},
    }
    searcher = make(space, run_space={"constant": 1})
    config = searcher.suggest("t")
    assert isinstance(config, dict)
    assert config["a"] in (0.0, 0.25, 0.5, 0.75, 1.0)
    assert 1 <= config["b"]["c"] <= 8
    assert config["d"]["e"] in ("x", "y") and config["d"]["fixed"] == 3


@pytest.mark.parametrize("where", ["searcher", "run", "run without a searcher"])
def test_define_by_run(where: str) -> None:
    if where == "searcher":
        searcher = make(by_run, run_space={"more": 1})
    elif where == "run":
        searcher = make(run_space=by_run)
    else:
        searcher = as_searcher(None, by_run, num_samples=40, metric="loss", mode="min", seed=5)
    configs = drive(searcher, 20)
    assert {config["kind"] for config in configs} == {"linear", "deep"}
    for config in configs:
        assert config["constant"] == 3
        assert ("model" in config) is (config["kind"] == "deep")


# --- there and back

EXACT: dict[str, Any] = {key: value for key, value in SPACE.items() if key not in ("n", "function")}


def resolved(space: Any, key: str) -> tuple[Any, dict[str, Any]]:
    compiled = Space(wrapped(space))
    return compiled, compiled.resolve(HashDraw(key))


@given(st.integers(0, 10_000))
def test_a_config_as_parameters_makes_the_same_config_again(key: int) -> None:
    space, config = resolved(EXACT, str(key))
    found = read(space.root, config)
    for name, (value, kind) in found.items():
        assert kind._contains(kind.to_internal_repr(value)), name
    params = {name: value for name, (value, _) in found.items()}
    assert space.resolve(AskDraw(optuna.trial.FixedTrial(params), "k")) == config
    assert fits(space.root, config)
    assert misfit(space.root, config) is None


@given(st.floats(-20, 20), st.floats(0.1, 5), st.floats(-15, 15))
def test_a_normal_value_is_searched_as_its_quantile(mean: float, sd: float, away: float) -> None:
    space = Space({"n": tune.randn(mean, sd)})
    value, kind = read(space.root, {"n": mean + away * sd})["n"]
    assert kind.low <= value <= kind.high
    back = space.resolve(AskDraw(optuna.trial.FixedTrial({"n": value}), "k"))["n"]
    assert back == pytest.approx(mean + max(-5.9, min(away, 5.9)) * sd, abs=0.2 * sd)


@pytest.mark.parametrize(
    ("domain", "distribution"),
    [
        (tune.uniform(0, 1), FloatDistribution(0, 1)),
        (tune.quniform(0, 1, 0.25), FloatDistribution(0, 1, step=0.25)),
        (tune.loguniform(1, 10), FloatDistribution(1, 10, log=True)),
        (tune.qloguniform(1, 10, 0.5), FloatDistribution(1, 10, log=True)),
        (tune.randint(0, 5), IntDistribution(0, 4)),
        (tune.qrandint(3, 21, 4), IntDistribution(4, 20, step=4)),
        (tune.lograndint(1, 9), IntDistribution(1, 8, log=True)),
        (tune.qlograndint(3, 9, 2), IntDistribution(4, 8, log=True)),
        (tune.choice(["a", 1, None]), CategoricalDistribution(("a", 1, None))),
        (tune.choice([1, True]), CategoricalDistribution((0, 1))),
        (tune.choice([[1], {"a": 2}]), CategoricalDistribution((0, 1))),
        (tune.choice([1, float("nan")]), CategoricalDistribution((0, 1))),
        (Given(IntDistribution(1, 3)), IntDistribution(1, 3)),
    ],
    ids=str,
)
def test_how_optuna_searches_each_domain(domain: Any, distribution: Any) -> None:
    assert distribution_of(domain) == distribution


def test_optunas_own_distributions_are_domains_that_it_alone_draws_from() -> None:
    space: Any = wrapped({"a": [IntDistribution(1, 3)], "b": tune.choice([FloatDistribution(0, 1), "x"]), "c": (1,)})
    given, choice = space["a"][0], space["b"]
    assert given == Given(IntDistribution(1, 3)) and isinstance(choice.categories[0], Given) and space["c"] == (1,)
    assert [given.is_valid(value) for value in (1, 3, 4)] == [True, True, False]
    assert describe(given) == repr(IntDistribution(1, 3))
    with pytest.raises(SettingError, match="only OptunaSearch draws from it"):
        given.at(0.5)


@pytest.mark.parametrize(
    ("names", "made"),
    [
        ({"a": 1}, {"a": 1}),
        ({"a/b": 1, "a/c/d": 2, "e": 3}, {"a": {"b": 1, "c": {"d": 2}}, "e": 3}),
        ({3: 1}, {3: 1}),
        ({}, {}),
    ],
)
def test_flat_names_become_dicts(names: Any, made: Any) -> None:
    assert nested(names) == made


# --- configs of elsewhere

THERE = {
    "lr": tune.uniform(0, 1),
    "m": {"opt": tune.choice([{"kind": "sgd", "mu": tune.uniform(0, 1)}, {"kind": "adam"}])},
    "l": [tune.randint(0, 3), 5],
    "f": tune.sample_from(len),
    "k": "constant",
}


def test_the_first_function_of_a_space_is_found_by_its_path() -> None:
    assert first_function(Space(THERE).root) == "f"
    assert first_function(Space({"a": {"b": [tune.sample_from(len)]}}).root) == "a/b/0"
    assert first_function(Space({"a": tune.uniform(0, 1)}).root) is None


@pytest.mark.parametrize("grid", [{"a": {"b": tune.grid_search([1])}}, {"a": [tune.grid_search([tune.uniform(0, 1)])]}])
def test_a_grid_is_refused_with_its_path(grid: Any) -> None:
    check_searchable(Space(THERE).root)
    with pytest.raises(SettingError, match=r"cannot search the grid_search at 'a/(b|0)'; make it a choice"):
        check_searchable(Space(grid).root)


def test_a_study_holds_numbers_and_texts_of_a_result_flat() -> None:
    result = {"loss": 1.0, "eval": {"auc": 2, "curve": [1]}, "note": "x", "ok": True, "none": None, "config": {}}
    assert plain_result(result) == {"loss": 1.0, "eval/auc": 2, "note": "x", "ok": True, "none": None}


# --- define by run


def test_what_a_function_would_have_asked_for() -> None:
    params, kinds = params_of_function(by_run, {"kind": "deep", "model": {"depth": 3}, "u": 0.5, "constant": 3})
    assert params == {"kind": "deep", "model/depth": 3, "u": 0.5}
    assert kinds["model/depth"] == IntDistribution(1, 5) and set(kinds) == set(params)
    assert params_of_function(by_run, {"kind": "deep", "u": 0.5}) == ({}, {}), "it asks for a depth"


@pytest.mark.parametrize("returned", [3, [1], {1: 2}, "x"])
def test_what_a_function_returns_is_a_dict_or_nothing(returned: Any) -> None:
    trial = optuna.trial.FixedTrial({"a/b": 1})

    def function(asked: Any) -> Any:
        asked.suggest_int("a/b", 0, 3)
        return returned

    with pytest.raises(SettingError, match="the define-by-run function returned"):
        config_of_function(function, trial)
    returned = {"a/c": 2, "d": 3}
    assert config_of_function(function, trial) == {"a": {"b": 1, "c": 2}, "d": 3}
    returned = None
    assert config_of_function(function, trial) == {"a": {"b": 1}}
