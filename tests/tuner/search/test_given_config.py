"""Configs that a user gives in part: put into a space, or into another config, or refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tuner as tune
from tuner.error import SettingError
from tuner.search.given_config import completed, edited

SPACE: dict[str, Any] = {
    "lr": tune.loguniform(1e-4, 1e-1),
    "model": {"width": tune.choice([8, 16]), "pads": tune.choice([(1, 2), (3, 4)]), "depth": 3},
    "grid": tune.grid_search([1, 2, 3]),
    "epochs": 10,
    "double": tune.sample_from(lambda config: config["lr"] * 2),
    "whole": tune.randint(1, 5),
    "list": [tune.uniform(0, 1), 2],
    "branch": tune.choice([{"rate": tune.uniform(0, 1)}, {"none": 1}]),
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "lr": st.floats(1e-4, 1e-1),
    "model/width": st.sampled_from([8, 16]),
    "model/pads": st.sampled_from([[1, 2], [3, 4]]),
    "model/depth": st.integers(),
    "grid": st.sampled_from([1, 2, 3]),
    "epochs": st.integers(),
    "double": st.floats(0, 1),
    "whole": st.sampled_from([1, 2.0, 4]),
    "list": st.builds(lambda value: [value, 5], st.floats(0, 1)),
    "branch": st.sampled_from([{"rate": 0.5}, {"none": 1}]),
}
some = st.sets(st.sampled_from(sorted(VALUES))).flatmap(
    lambda names: st.fixed_dictionaries({name: VALUES[name] for name in names})
)


def at(config: Any, path: str) -> Any:
    for key in path.split("/"):
        config = config[key]
    return list(config) if isinstance(config, tuple) else config


@given(some, st.text())
def test_what_is_given_stands_and_the_rest_is_drawn_from_the_space(point: dict[str, Any], key: str) -> None:
    config = completed(SPACE, point, key)
    assert completed(SPACE, point, key) == config and list(config) == list(SPACE)
    assert {path: at(config, path) for path in point} == point
    assert 1e-4 <= config["lr"] <= 1e-1 and config["grid"] in (1, 2, 3) and config["model"]["pads"] in [(1, 2), (3, 4)]
    assert config["double"] == point.get("double", config["lr"] * 2)  # functions see what was given
    assert isinstance(config["whole"], int) and config["model"]["width"] in (8, 16)


@given(some)
def test_a_config_that_is_whole_is_taken_as_it_is_also_nested(point: dict[str, Any]) -> None:
    whole = completed(SPACE, point, "one")
    assert completed(SPACE, whole, "another") == whole


def test_a_grid_deep_in_a_space_is_listed_as_one_key() -> None:
    space = {"opt": {"lr": {"grid_search": [1, 2]}, "none": {}, "more": {"decay": {"grid_search": [0]}}}}
    with pytest.raises(
        SettingError, match="'x' is not in the search space; it has opt/lr, opt/none, opt/more/decay(?m:$)"
    ):
        completed(space, {"x": 1}, "key")
    with pytest.raises(SettingError, match="opt=5 is not accepted: there are lr, none, more/decay in it"):
        completed(space, {"opt": 5}, "key")


@pytest.mark.parametrize(
    ("point", "said"),
    [
        ({"lrr": 1}, "'lrr' is not in the search space; did you mean 'lr'?"),
        ({"model/widht": 8}, "'model/widht' is not in the search space; did you mean 'model/width'?"),
        ({"model": {"widht": 8}}, "'model/widht' is not in the search space; did you mean 'model/width'?"),
        ({"lr/x": 8}, "'lr/x' is not in the search space"),
        ({"lr": 5}, r"lr=5 is not a value of loguniform\(0.0001, 0.1\)"),
        ({"lr": None}, "lr=None is not a value of"),
        ({"lr": True}, "lr=True is not a value of"),
        ({"model/width": 9}, r"model/width=9 is not a value of choice\(\[8, 16\]\)"),
        ({"grid": 9}, r"grid=9 is not a value of grid_search\(\[1, 2, 3\]\)"),
        ({"list": [5, 2]}, "list/0=5 is not a value of uniform"),
        ({"branch": {"rate": 3}}, "is not a value of choice"),
        ({"model": 3}, "model=3 is not accepted: there are width, pads, depth in it"),
    ],
)
def test_what_a_space_has_not_is_refused_by_name(point: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        completed(SPACE, point, "key")


def test_an_edited_config_keeps_what_is_not_named_and_does_not_change_the_given_one() -> None:
    config = {"lr": 1, "model": {"a": 1, "b": {"c": 2}}, "with/slash": 3, "list": [1]}
    changed = edited(config, {"model/b/c": 5, "with/slash": 4, "model": {"a": 9}, "list": [2]})
    assert changed == {"lr": 1, "model": {"a": 9, "b": {"c": 5}}, "with/slash": 4, "list": [2]}
    assert config["model"] == {"a": 1, "b": {"c": 2}} and config["list"] == [1]
    with pytest.raises(SettingError, match="'model/b/d' is not in the config; did you mean 'model/b/c'?"):
        edited(config, {"model/b/d": 1})
