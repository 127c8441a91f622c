"""Resolving a space: order, branches, functions, grids."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tuner as tune
from tests.tuner.search.spaces import BRANCHES, resolve
from tuner.error import SettingError
from tuner.search.resolve import HashDraw, Space


def grid(space: dict[str, Any]) -> list[dict[str, Any]]:
    compiled = Space(space)
    return [compiled.resolve(HashDraw("seed"), index) for index in range(compiled.grid_size)]


@pytest.mark.parametrize(
    "function",
    [
        lambda spec: spec.config.model.width * 2,
        lambda spec: spec["config"]["model"]["width"] * 2,
        lambda config: config["model"]["width"] * 2,
        lambda config: config.model.width * 2,
        lambda c: c.get("model").get("width") * 2,
        lambda c: dict(**c)["model"]["width"] * 2,
    ],
)
def test_every_way_to_look_at_the_config(function: Any) -> None:
    config = resolve({"double": tune.sample_from(function), "model": {"width": tune.randint(3, 9)}})
    assert config["double"] == config["model"]["width"] * 2


def test_a_key_named_config_is_a_key() -> None:
    config = resolve({"config": {"x": 1}, "y": tune.sample_from(lambda c: c["config"]["x"] + 1)})
    assert config["y"] == 2


def test_functions_run_after_those_that_they_look_at_whatever_the_order() -> None:
    config = resolve(
        {
            "c": tune.sample_from(lambda spec: spec.config.b + 1),
            "b": tune.sample_from(lambda spec: spec.config.a + 1),
            "a": tune.sample_from(lambda: 1),
        }
    )
    assert config == {"c": 3, "b": 2, "a": 1}
    assert list(config) == ["c", "b", "a"]


def test_a_circle_is_named() -> None:
    space = {
        "a": tune.sample_from(lambda spec: spec.config.deep.b),
        "deep": {"b": tune.sample_from(lambda spec: spec.config.c)},
        "c": tune.sample_from(lambda spec: spec.config.a),
    }
    with pytest.raises(SettingError, match=r"in a circle: a -> deep/b -> c -> a"):
        resolve(space)


def test_a_function_that_fails_is_named_with_what_there_is() -> None:
    with pytest.raises(
        SettingError, match=r"sample_from at 'm/b' failed: AttributeError: 'x' is not in the config.*: a, m"
    ) as e:
        resolve({"a": 1, "m": {"b": tune.sample_from(lambda spec: spec.config.x)}})
    assert isinstance(e.value.__cause__, AttributeError)


def test_a_function_may_return_domains_dicts_and_parts_of_the_config() -> None:
    config = resolve(
        {
            "n": tune.randint(2, 3),
            "layers": tune.sample_from(lambda spec: [tune.randint(0, 5) for _ in range(spec.config.n)]),
            "copy": tune.sample_from(lambda c: {"inner": c["model"]}),
            "model": {"w": 3, "tail": (1, tune.uniform(0, 1))},
        }
    )
    assert len(config["layers"]) == 2 and all(type(value) is int for value in config["layers"])
    assert type(config["copy"]["inner"]) is dict
    assert config["copy"]["inner"]["w"] == 3


def test_functions_in_lists_and_tuples_keep_the_kind() -> None:
    config = resolve(
        {
            "t": (1, tune.sample_from(lambda c: c["l"][-1] + 1), [tune.sample_from(lambda: 5)]),
            "l": [tune.randint(1, 2), 7],
        }
    )
    assert config == {"t": (1, 8, [5]), "l": [1, 7]}


@pytest.mark.parametrize("draw", [random.random, np.random.uniform, lambda: float(np.random.rand())])
def test_global_generators_are_seeded_for_a_function_and_left_alone(draw: Any) -> None:
    space = {"x": tune.sample_from(lambda spec: draw())}
    random.seed(5)
    np.random.seed(5)
    before = (random.getstate(), np.random.get_state()[1].tolist())
    first = resolve(space, "one")
    random.random()
    np.random.rand()
    assert resolve(space, "one") == first != resolve(space, "two")
    random.seed(5)
    np.random.seed(5)
    resolve(space)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_only_what_is_in_the_chosen_branch_is_drawn() -> None:
    seen = set()
    for number in range(60):
        config = resolve(BRANCHES, str(number))
        optimizer = config["optimizer"]
        seen.add((optimizer["kind"], type(optimizer.get("momentum")).__name__))
        assert list(optimizer) == ["kind", "lr"] if optimizer["kind"] == "adam" else len(optimizer) == 3
        assert (optimizer["lr"] < 1e-2) is (optimizer["kind"] == "adam")
        assert 1 <= config["width"] < 3 or 100 <= config["width"] < 300
    assert seen == {("adam", "NoneType"), ("sgd", "int"), ("sgd", "dict")}


def test_the_first_grid_by_path_runs_fastest() -> None:
    space = {"b": tune.grid_search(["x", "y"]), "a": tune.grid_search([1, 2, 3]), "c": 0}
    assert [(c["a"], c["b"]) for c in grid(space)] == [(1, "x"), (2, "x"), (3, "x"), (1, "y"), (2, "y"), (3, "y")]


def test_grids_in_lists_dicts_and_as_plain_yaml() -> None:
    space = {"m": [{"x": {"grid_search": [1, 2]}}, 5], "z": ({"grid_search": [True]},)}
    assert grid(space) == [{"m": [{"x": 1}, 5], "z": (True,)}, {"m": [{"x": 2}, 5], "z": (True,)}]


def test_a_grid_inside_a_value_of_a_grid_runs_inside_it() -> None:
    space = {
        "model": tune.grid_search(
            [{"kind": "linear"}, {"kind": "deep", "depth": tune.grid_search([2, 3]), "w": tune.grid_search([7])}]
        ),
        "b": tune.grid_search([0, 1]),
    }
    found = [(c["b"], c["model"]["kind"], c["model"].get("depth")) for c in grid(space)]
    assert found == [
        (0, "linear", None),
        (1, "linear", None),
        (0, "deep", 2),
        (0, "deep", 3),
        (1, "deep", 2),
        (1, "deep", 3),
    ]


def test_values_of_a_grid_may_hold_domains() -> None:
    (first, second) = grid({"g": tune.grid_search([tune.uniform(0, 1), {"x": tune.uniform(5, 6)}])})
    assert 0 <= first["g"] < 1
    assert 5 <= second["g"]["x"] < 6


def test_a_huge_grid_is_not_made() -> None:
    space = Space({f"g{number}": tune.grid_search(list(range(100))) for number in range(10)})
    assert space.grid_size == 100**10
    assert space.resolve(HashDraw(""), 100**10 - 1) == {f"g{number}": 99 for number in range(10)}


def test_constants_are_passed_on_without_a_copy() -> None:
    big = list(range(1000))
    config = resolve({"data": big, "nested": {"data": big, "x": tune.uniform(0, 1)}})
    assert config["data"] is big and config["nested"]["data"] is big


def test_a_plain_config_is_copied_at_the_top() -> None:
    space = {"a": 1}
    config = resolve(space)
    config["a"] = 2
    assert space == {"a": 1}


def test_a_function_that_returns_two_domains_of_one_name_is_told() -> None:
    space = Space({"f": tune.sample_from(lambda: {"a/b": tune.uniform(0, 1), "a": {"b": tune.uniform(0, 1)}})})
    with pytest.raises(SettingError, match="always get the same value"):
        space.resolve(HashDraw("1"))
