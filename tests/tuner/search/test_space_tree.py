"""The tree of a space: what a grid accepts, and that two places never have one name."""

from __future__ import annotations

from typing import Any

import pytest

import tuner as tune
from tests.tuner.search.spaces import resolve
from tuner.error import SettingError
from tuner.search.resolve import Space


def test_a_grid_in_a_branch_is_refused() -> None:
    for branch in (tune.choice([{"x": tune.grid_search([1, 2])}]), tune.choice([tune.grid_search([1, 2])])):
        with pytest.raises(SettingError, match="grid_search cannot be in a branch"):
            Space({"a": branch})
    with pytest.raises(SettingError, match="grid_search cannot be in a branch"):
        resolve({"a": tune.sample_from(lambda: tune.grid_search([1, 2]))})


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
