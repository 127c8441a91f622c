"""Resolving a space: order, branches, functions, grids."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tuner as tune
from tests.tuner.search.spaces import BRANCHES, resolve
from tuner.error import SettingError
from tuner.search.resolve import HashDraw, Space, seeded


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


# --- values by place

VALUES = st.sampled_from([1, "a", None]) | st.builds(tune.uniform, st.just(0), st.integers(1, 5))
SPACES = st.dictionaries(
    st.sampled_from("abcd"),
    st.recursive(
        VALUES | st.builds(tune.choice, st.lists(VALUES, min_size=1, max_size=3)),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=2),
        max_leaves=4,
    ),
    max_size=4,
)


@given(SPACES, st.text(max_size=3), st.dictionaries(st.sampled_from("efg"), VALUES))
def test_what_a_key_gets_depends_on_its_place_only(space: Any, key: str, more: Any) -> None:
    alone, beside = resolve(space, key), resolve({**more, **space}, key)
    assert {name: beside[name] for name in alone} == alone
    assert resolve(dict(reversed(space.items())), key) == alone
    assert list(alone) == list(space)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_every_combination_of_grids_comes_once(sizes: list[int]) -> None:
    space = {f"g{number}": tune.grid_search(list(range(size))) for number, size in enumerate(sizes)}
    found = [tuple(config.values()) for config in grid(space)]
    assert sorted(found) == sorted(itertools.product(*map(range, sizes)))
    assert found[: sizes[0]] == [(first, *[0] * (len(sizes) - 1)) for first in range(sizes[0])]


def test_draws_are_a_function_of_key_and_name() -> None:
    draw = HashDraw("seed")
    assert draw.value("a", tune.uniform(0, 1)) == HashDraw("seed").value("a", tune.uniform(0, 1))
    assert len({draw.seed(name) for name in map(str, range(1000))}) == 1000
    assert HashDraw("seed").seed("a") != HashDraw("other").seed("a")
    assert HashDraw("\udcff").seed("\udcff") > 0, "names that are no UTF-8"
    drawn = [draw.value(str(number), tune.uniform(0, 1)) for number in range(2000)]
    assert sum(drawn) / 2000 == pytest.approx(0.5, abs=0.03) and max(drawn) < 1


@pytest.mark.parametrize("config", [None, [1], "a", tune.uniform(0, 1)], ids=str)
def test_a_space_that_is_no_dict_is_refused(config: Any) -> None:
    with pytest.raises(SettingError, match="a search space is a dict, not "):
        Space(config)


# --- what a function sees


def test_a_function_sees_the_config_as_a_mapping_without_itself() -> None:
    seen: dict[str, Any] = {}

    def look(config: Any) -> int:
        seen.update(keys=list(config), size=len(config), own="f" in config, there="a" in config, text=repr(config))
        seen.update(missing="z" in config, got=config.get("z", 7), has=hasattr(config, "__wrapped__"))
        return 0

    resolve({"a": 1, "f": tune.sample_from(look), "m": {"x": 2}})
    assert seen == {
        "keys": ["a", "m"],
        "size": 2,
        "own": True,
        "there": True,
        "text": "{'a': 1, 'f': <not drawn yet>, 'm': {'x': 2}}",
        "missing": False,
        "got": 7,
        "has": False,
    }


def test_a_list_is_seen_item_by_item_while_functions_are_left() -> None:
    space = {
        "list": [tune.sample_from(lambda c: 1), 2, tune.sample_from(lambda c: c["list"][0] + 2)],
        "sum": tune.sample_from(lambda c: sum(c["list"])),
        "tail": tune.sample_from(lambda c: c["list"][1:]),
        "text": tune.sample_from(lambda c: repr(c["list"])),
        "last": tune.sample_from(lambda c: c["list"][-1]),
    }
    config = resolve({"text": space.pop("text"), **space})
    assert config["list"] == [1, 2, 3] and config["sum"] == 6 and config["last"] == 3
    assert config["tail"] == [2, 3] and type(config["tail"]) is list
    assert config["text"] == "[<not drawn yet>, 2, <not drawn yet>]"


def test_a_list_that_is_too_short_is_an_error_of_the_function() -> None:
    with pytest.raises(SettingError, match="sample_from at 'f' failed: IndexError"):
        resolve({"f": tune.sample_from(lambda c: c["list"][5]), "list": [tune.sample_from(lambda: 1)]})


def test_what_a_function_returns_has_no_views_in_it() -> None:
    space = {
        "f": tune.sample_from(lambda c: {"all": [c["m"], (c["m"]["l"],)]}),
        "m": {"l": [tune.sample_from(lambda: 1)], "x": 2},
    }
    inner = resolve(space)["f"]["all"]
    assert inner == [{"l": [1], "x": 2}, ([1],)]
    assert (type(inner[0]), type(inner[0]["l"]), type(inner[1])) == (dict, list, tuple)


def test_without_a_seed_the_generators_are_left_to_the_function() -> None:
    random.seed(5)
    expected = random.random()
    random.seed(5)
    with seeded(None):
        assert random.random() == expected
    random.seed(5)
    with pytest.raises(KeyError), seeded(1):
        raise KeyError
    assert random.random() == expected, "also after an error"
