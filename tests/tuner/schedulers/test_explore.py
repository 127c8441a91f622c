"""How configs are changed."""

from __future__ import annotations

import copy
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

import tuner as tune
from tuner.schedulers.explore import Explorer, completed

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


@pytest.mark.parametrize("source", [tune.uniform(0, 5), lambda: 4.0, tune.choice([2.0, 7.0])])
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


def test_a_choice_of_words_is_a_list() -> None:
    assert set(values({"x": tune.choice(["a", "b", "c"])}, {"x": "b"}, "x")) == {"a", "c"}


def test_how_often_a_value_is_resampled() -> None:
    found = values({"x": tune.uniform(100, 200)}, {"x": 1.0}, "x", resample=0.25)
    assert 45 <= sum(count for value, count in found.items() if value >= 100) <= 105


def test_nested_ones_and_all_else_stays() -> None:
    config = {"opt": {"lr": 1.0, "name": "adam", "sched": {"gamma": 1.0}}, "data": [1]}
    before = copy.deepcopy(config)
    mutations = {"opt": {"lr": tune.uniform(0, 1), "sched": {"gamma": [0.5, 1.0]}}}
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
