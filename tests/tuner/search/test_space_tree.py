"""The tree of a space: what a grid accepts, and that two places never have one name."""

from __future__ import annotations

import random
import re
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tuner as tune
from tests.tuner.search.spaces import resolve
from tuner.error import SettingError
from tuner.search.domains import Float
from tuner.search.fitting import nested
from tuner.search.resolve import Space
from tuner.search.space_tree import (
    Branches,
    Computed,
    Fixed,
    GridValues,
    Items,
    Leaf,
    Node,
    check_distinct,
    compile_node,
    flat,
    is_grid,
    leaves,
    path_text,
    walk,
)


def test_a_grid_in_a_branch_is_refused() -> None:
    for branch in (tune.choice([{"x": tune.grid_search([1, 2])}]), tune.choice([tune.grid_search([1, 2])])):
        with pytest.raises(SettingError, match="grid_search cannot be in a branch"):
            Space({"a": branch})
    with pytest.raises(SettingError, match="grid_search cannot be in a branch"):
        resolve({"a": tune.sample_from(lambda: tune.grid_search([1, 2]))})
    for value, place in (({"a": branch}, "a"), (branch, "the space")):
        with pytest.raises(SettingError, match=rf"\(at {place}\)"):
            compile_node(value)


@pytest.mark.parametrize("values", [[], "abc", {"a": 1}, 5, None])
def test_a_grid_that_is_no_list_is_refused(values: Any) -> None:
    with pytest.raises(SettingError, match="x: grid_search of .* is not accepted"):
        Space({"x": {"grid_search": values}})


@pytest.mark.parametrize(
    ("space", "places"),
    [
        ({"a/b": tune.uniform(0, 1), "a": {"b": tune.uniform(0, 1)}}, ("config['a/b']", "config['a']['b']", "'a/b'")),
        ({"a": {"b": tune.grid_search([1])}, "a/b": tune.choice([1])}, ("config['a']['b']", "config['a/b']", "'a/b'")),
        ({1: tune.uniform(0, 1), "1": tune.randint(0, 9)}, ("config[1]", "config['1']", "'1'")),
        ({"a": [tune.uniform(0, 1)], "a/0": tune.uniform(0, 1)}, ("config['a'][0]", "config['a/0']", "'a/0'")),
        (
            {"c": tune.choice([{"x/y": tune.uniform(0, 1), "x": {"y": tune.uniform(0, 1)}}])},
            ("config['c'] (branch 0)['x/y']", "config['c'] (branch 0)['x']['y']", "'c[0]/x/y'"),
        ),
    ],
    ids=["dict", "grid", "number", "list", "branch"],
)
def test_two_places_of_one_name_are_an_error_that_names_both(space: Any, places: tuple[str, ...]) -> None:
    with pytest.raises(SettingError, match="rename one of the keys") as caught:
        Space(space)
    assert all(place in str(caught.value) for place in places)


def test_branches_of_one_choice_may_have_the_same_keys_and_constants_any() -> None:
    Space({"c": tune.choice([{"x": tune.uniform(0, 1)}, {"x": tune.uniform(5, 6)}]), "a/b": 1, "a": {"b": 2}})


# --- what a tree is made of

LEAF = Leaf(tune.uniform(0, 1))


@pytest.mark.parametrize(
    ("value", "node"),
    [
        (1, Fixed(1)),
        ({"a": [1, {"b": (2,)}]}, Fixed({"a": [1, {"b": (2,)}]})),
        ({}, Fixed({})),
        (tune.uniform(0, 1), LEAF),
        ([tune.uniform(0, 1), 2], Items(list, ((0, LEAF), (1, Fixed(2))))),
        ((tune.uniform(0, 1),), Items(tuple, ((0, LEAF),))),
        ({"a": {"b": tune.uniform(0, 1)}, "c": 3}, Items(dict, (("a", Items(dict, (("b", LEAF),))), ("c", Fixed(3))))),
        (tune.grid_search([1, tune.uniform(0, 1)]), GridValues((Fixed(1), LEAF))),
        ({"grid_search": [1], "more": 2}, Fixed({"grid_search": [1], "more": 2})),
    ],
    ids=str,
)
def test_a_space_becomes_a_tree_whose_fixed_parts_are_one(value: Any, node: Node) -> None:
    assert compile_node(value) == node


def test_choices_and_functions_are_nodes_of_their_own() -> None:
    choice, function = tune.choice([1, {"x": tune.uniform(0, 1)}]), tune.sample_from(len)
    assert compile_node(choice) == Branches(choice, (Fixed(1), Items(dict, (("x", LEAF),))))
    assert compile_node(function) == Computed(function)


class Pair(NamedTuple):
    left: Any
    right: Any


def test_a_fixed_part_is_the_very_object_and_other_kinds_of_sequences_are_values() -> None:
    for value in ([1, 2], Pair(tune.uniform(0, 1), 2), range(3)):
        node = compile_node(value)
        assert isinstance(node, Fixed) and node.value is value


@pytest.mark.parametrize(
    ("value", "grid"),
    [
        ({"grid_search": [1]}, True),
        ({"grid_search": 1}, True),
        ({"grid_search": [1], "x": 1}, False),
        (["grid_search"], False),
        (None, False),
    ],
)
def test_a_grid_is_a_dict_of_that_one_key(value: Any, grid: bool) -> None:
    assert is_grid(value) is grid


# --- walking through one

SPACE = {
    "a": tune.uniform(0, 1),
    "b": {"c": tune.choice([{"d": tune.uniform(0, 1)}, 5]), "e": 6},
    "g": tune.grid_search([{"h": tune.uniform(0, 1)}]),
    "l": [7, (tune.randint(0, 2),)],
}


def test_a_walk_comes_to_everything_but_what_lies_inside_grids() -> None:
    paths = [path for path, _ in walk(compile_node(SPACE))]
    assert paths == ["", "a", "b", "b/c", "b/c/0", "b/c/0/d", "b/c/1", "b/e", "g", "l", "l/0", "l/1", "l/1/0"]


def test_a_choice_and_a_grid_are_one_place() -> None:
    found = {path_text(path): type(node) for path, node in leaves(compile_node(SPACE))}
    assert found == {"a": Leaf, "b/c": Branches, "b/e": Fixed, "g": GridValues, "l/0": Fixed, "l/1/0": Leaf}


KEYS = st.text("abc", min_size=1, max_size=2)
CONFIGS = st.dictionaries(
    KEYS, st.recursive(st.integers() | st.none() | st.just({}), lambda inner: st.dictionaries(KEYS, inner, max_size=3))
)


@given(CONFIGS.filter(bool))
def test_flat_names_lead_to_the_values(config: dict[str, Any]) -> None:
    made = flat(config)
    assert not any(isinstance(value, dict) and value for value in made.values())
    for path, value in made.items():
        node: Any = config
        for key in path.split("/"):
            node = node[key]
        assert node == value
    assert nested(made) == config


@given(CONFIGS)
def test_what_has_nothing_to_search_is_one_fixed_part(config: dict[str, Any]) -> None:
    node = compile_node(config)
    assert isinstance(node, Fixed) and node.value is config
    check_distinct(node)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            tune.uniform,
            "tune.uniform makes a domain, and is none before it is called: write tune.uniform(lower, upper)",
        ),
        (tune.choice, "write tune.choice(categories)"),
        (tune.grid_search, "write tune.grid_search(values)"),
        (tune.randn, "write tune.randn()"),
        (tune.sample_from, "write tune.sample_from(func)"),
        (Float, "write Float(lower, upper)"),
        (Float(0, 1).uniform, "write Float.uniform()"),
    ],
)
@pytest.mark.parametrize("inside", [lambda x: x, lambda x: [1, {"b": x}], lambda x: tune.choice([1, x])])
def test_what_makes_a_domain_is_refused_where_it_was_not_called(value: Any, said: str, inside: Any) -> None:
    with pytest.raises(SettingError, match=rf"^model/lr.*{re.escape(said)}(?m:$)"):
        compile_node({"model": {"lr": inside(value)}})


@pytest.mark.parametrize("value", [random.random, len, lambda: 0.1, str, Any])
def test_any_other_function_is_a_value(value: Any) -> None:
    assert isinstance(compile_node({"activation": value}), Fixed)
    assert isinstance(compile_node({"activation": tune.choice([value])}), Items)
