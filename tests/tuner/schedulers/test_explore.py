"""How configs are changed."""

from __future__ import annotations

import copy
import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tuner as tune
from tuner.schedulers.explore import Explorer, clipped, completed
from tuner.search.domains import Float, Integer

KEYS = [f"key {number}" for number in range(300)]


def values(mutations: Any, config: Any, name: str, *, resample: float = 0.0) -> Counter[Any]:
    explorer = Explorer(mutations, resample, (1.2, 0.8))
    return Counter(explorer.explored(config, key)[name] for key in KEYS)


def test_a_list_gives_a_neighbour() -> None:
    found = values({"x": [1, 2, 3, 4]}, {"x": 2}, "x")
    assert set(found) == {1, 3}
    assert min(found.values()) > 100
    assert set(values({"x": [1, 2, 3, 4]}, {"x": 1}, "x")) == {1, 2}
    assert set(values({"x": (1, 2, 3, 4)}, {"x": 4}, "x")) == {3, 4}


def test_what_is_not_in_the_list_is_replaced() -> None:
    assert set(values({"x": ["a", "b"]}, {"x": "z"}, "x")) == {"a", "b"}
    assert set(values({"x": [1, 2]}, {"x": True}, "x")) == {1, 2}


@pytest.mark.parametrize("source", [tune.uniform(0, 5), lambda: 4.0, tune.randn(), Float(None, None)])
def test_a_number_is_multiplied(source: Any) -> None:
    assert set(values({"x": source}, {"x": 2.0}, "x")) == {2.4, 1.6}


def test_an_int_stays_one() -> None:
    assert set(values({"x": tune.randint(1, 100)}, {"x": 32}, "x")) == {38, 26}
    assert all(type(value) is int for value in values({"x": tune.uniform(1, 9)}, {"x": 5}, "x", resample=1.0))
    assert set(values({"x": tune.randint(1, 100)}, {"x": np.int64(32)}, "x")) == {38, 26}


def test_a_bool_only_changes_by_resampling() -> None:
    assert set(values({"x": tune.choice([True, False])}, {"x": True}, "x")) == {True}
    found = values({"x": tune.choice([True, False])}, {"x": True}, "x", resample=1.0)
    assert set(found) == {True, False}


def test_a_choice_is_a_list() -> None:
    assert set(values({"x": tune.choice(["a", "b", "c"])}, {"x": "b"}, "x")) == {"a", "c"}
    assert set(values({"x": tune.choice([16, 32, 64])}, {"x": 32}, "x")) == {16, 64}
    assert set(values({"x": tune.choice([0.5, 1.5])}, {"x": 1}, "x", resample=1.0)) == {0.5, 1.5}


NUMBERS = st.integers(-50, 50) | st.floats(-50, 50)


@st.composite
def numeric_domains(draw: st.DrawFn) -> Any:
    low = draw(st.floats(0.01, 20))
    high = low + draw(st.floats(0.01, 20))
    first = draw(st.integers(1, 20))
    last = first + draw(st.integers(1, 20))
    step, grid = draw(st.sampled_from([0.1, 0.25, 0.3])), draw(st.sampled_from([2, 3]))
    from_grid, to_grid = step * round(low / step), step * (round(high / step) + 1)
    return draw(
        st.sampled_from(
            [
                tune.uniform(low, high),
                tune.uniform(-high, low),
                tune.loguniform(low, high),
                tune.quniform(from_grid, to_grid, step),
                tune.randint(first, last),
                tune.randint(-last, first),
                tune.lograndint(first, last),
                tune.qrandint(first * grid, last * grid, grid),
            ]
        )
    )


@given(
    domain=numeric_domains(),
    value=NUMBERS,
    factors=st.lists(st.floats(0.01, 100), min_size=1, max_size=3),
    key=st.text(max_size=3),
    resample=st.sampled_from([0.0, 1.0]),
)
def test_a_value_stays_within_its_domain(
    domain: Any, value: float, factors: list[float], key: str, resample: float
) -> None:
    made = Explorer({"x": domain}, resample, tuple(factors)).explored({"x": value}, key)["x"]
    assert domain.is_valid(made) and domain.quantize(made) == made
    if isinstance(domain, Integer):
        assert type(made) is int


@given(low=st.floats(-20, 20), width=st.floats(0, 20), new=NUMBERS, like=NUMBERS)
def test_a_clipped_number_lies_within_the_bounds_and_is_an_int_where_one_fits(
    low: float, width: float, new: float, like: float
) -> None:
    high = low + width
    made = clipped(new, low, high, like=like)
    assert low <= made <= high
    assert type(made) is (int if type(like) is int and math.ceil(low) <= math.floor(high) else type(made))


def test_an_int_is_none_where_no_whole_number_lies_in_the_domain() -> None:
    assert set(values({"x": tune.uniform(0.2, 0.8)}, {"x": 1}, "x")) == {0.8}
    assert set(values({"x": tune.uniform(0.2, 1.8)}, {"x": 1}, "x")) == {1}


def test_a_function_has_no_bounds_and_that_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    values({"x": lambda: 4.0, "y": tune.uniform(0, 1)}, {"x": 2.0, "y": 0.5}, "x")
    (line,) = caplog.messages
    assert line.startswith("hyperparam_mutations['x'] is a function, which has no bounds: 2.0 is multiplied by ")


def test_how_often_a_value_is_resampled() -> None:
    found = values({"x": tune.uniform(0, 200)}, {"x": 1.0}, "x", resample=0.25)
    assert 45 <= sum(count for value, count in found.items() if value not in (1.2, 0.8)) <= 105


def test_nested_ones_and_all_else_stays() -> None:
    config = {"opt": {"lr": 1.0, "name": "adam", "sched": {"gamma": 1.0}}, "data": [1]}
    before = copy.deepcopy(config)
    mutations = {"opt": {"lr": tune.uniform(0, 4), "sched": {"gamma": [0.5, 1.0]}}}
    made = Explorer(mutations, 0.0, (2.0,)).explored(config, "key")
    assert made == {"opt": {"lr": 2.0, "name": "adam", "sched": {"gamma": made["opt"]["sched"]["gamma"]}}, "data": [1]}
    assert config == before
    made["data"].append(2)
    assert config == before


def test_what_a_config_lacks_is_drawn() -> None:
    mutations = {
        "a": [1, 2],
        "b": {"c": tune.uniform(5, 6), "d": lambda: "made"},
        "e": tune.choice([{"f": tune.randn()}]),
    }
    made = completed({"b": {"c": 0.0}, "z": 1}, mutations, "key")
    assert made["a"] in (1, 2)
    assert made["b"] == {"c": 0.0, "d": "made"}
    assert isinstance(made["e"]["f"], float)
    assert made["z"] == 1
    assert set(Explorer(mutations, 0.0, (1.2,)).explored({}, "key")) == {"a", "b", "e"}


def test_each_value_is_a_function_of_the_key_and_its_name_alone() -> None:
    few = Explorer({"x": tune.uniform(0, 1)}, 1.0, (1.2,))
    many = Explorer({"y": lambda: random.random() + float(np.random.rand()), "x": tune.uniform(0, 1)}, 1.0, (1.2,))
    state = random.getstate()
    assert few.explored({"x": 1.0}, "k")["x"] == many.explored({"x": 1.0, "y": 1.0}, "k")["x"]
    assert many.explored({"x": 1.0, "y": 1.0}, "k") == many.explored({"x": 1.0, "y": 1.0}, "k")
    assert random.getstate() == state
