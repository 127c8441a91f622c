"""Spaces as dimensions: configs of points, and points of configs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tuner as tune
from tests.tuner.search.library_harness import BRANCHED, check_config, spaces
from tuner.error import SettingError
from tuner.search.dimensions import DimensionSpace


@given(spaces(branches=False), st.integers(0, 99))
def test_a_point_makes_the_config_that_it_was_made_of(space: dict[str, Any], key: int) -> None:
    whole = DimensionSpace(space, "it")
    config = whole.config({}, str(key))
    point = whole.point(config)
    again = whole.config(point, "another")
    check_config(space, again)
    assert whole.point(again) == pytest.approx(point)
    for name, number in point.items():
        each = whole.dimensions[name]
        assert each.low <= number <= each.high and (each.kind == "float") is (type(number) is float)


@given(spaces(branches=True), st.data())
def test_every_number_within_the_bounds_is_a_valid_value(space: dict[str, Any], data: st.DataObject) -> None:
    whole = DimensionSpace(space, "it")
    point = {name: data.draw(st.floats(each.low, each.high)) for name, each in whole.dimensions.items()}
    check_config(space, whole.config(point, "key"))


def test_dimensions_inside_a_choice_hang_on_it() -> None:
    space = {"opt": tune.choice([{"a": tune.uniform(0, 1)}, {"b": tune.choice([tune.randint(0, 9), 3])}, 7])}
    found = {each.name: each.parent for each in DimensionSpace(space, "it").dimensions.values()}
    assert found == {"opt": None, "opt[0]/a": ("opt", 0), "opt[1]/b": ("opt", 1), "opt[1]/b[0]": ("opt[1]/b", 0)}


def test_what_has_one_value_is_no_dimension() -> None:
    space = {"x": tune.uniform(0, 1), "n": tune.randint(3, 4), "c": tune.choice([{"d": tune.uniform(0, 1)}])}
    whole = DimensionSpace(space, "it")
    assert {each.name: each.parent for each in whole.dimensions.values()} == {"x": None, "c[0]/d": None}
    assert whole.config({"x": 0.5, "c[0]/d": 0.25}, "key") == {"x": 0.5, "n": 3, "c": {"d": 0.25}}


def test_a_point_in_part_nested_or_flat() -> None:
    whole = DimensionSpace({"m": {"x": tune.uniform(0, 1), "n": tune.randint(0, 9)}, "a/b": tune.uniform(0, 1)}, "it")
    assert whole.given({"m": {"x": 0.5}}, "points") == whole.given({"m/x": 0.5}, "points") == {"m/x": 0.5}
    assert whole.given({"a/b": 0.5}, "points") == {"a/b": 0.5}


@pytest.mark.parametrize("what", list(BRANCHED))
def test_each_domain_there_and_back(what: str) -> None:
    space = {"s": tune.uniform(0, 1), "u": tune.uniform(0, 1), what: BRANCHED[what]}
    whole = DimensionSpace(space, "it")
    for key in range(20):
        config = whole.config({}, str(key))
        again = whole.config(whole.point(config), "another")
        assert again == pytest.approx(config) if what in ("u", "n", "lu") else whole.point(again) == whole.point(config)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"g": {"h": tune.grid_search([1, 2])}}, "it cannot search the grid_search at 'g/h'; make it a choice"),
        ({"a": 3}, "nothing to search.* accepted are uniform, loguniform, randint"),
        ({"a": tune.randint(3, 4)}, "nothing to search"),
    ],
)
def test_what_cannot_be_searched_is_named(space: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        DimensionSpace(space, "it")


def test_a_domain_of_ones_own_is_named_with_those_that_are_accepted() -> None:
    class Even(tune.search.sample.Domain):
        def is_valid(self, value: Any) -> bool:
            return bool(value % 2 == 0)

    with pytest.raises(SettingError, match=r"it cannot search 'a/b': Even\(\) is a domain of a kind .* accepted are"):
        DimensionSpace({"a": {"b": Even()}}, "it")
