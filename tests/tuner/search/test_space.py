"""Spaces beside their configs: constants, searched values, and comparing one space with another."""

from __future__ import annotations

from typing import Any

import pytest

import tuner as tune
from tests.tuner.search.spaces import BRANCHES, resolve
from tuner.search.space import (
    evaluated_params,
    fingerprint,
    merge_constants,
    searched_paths,
    space_difference,
    space_warnings,
)


def test_merge_constants() -> None:
    space = {
        "x": tune.uniform(0, 1),
        "m": {"y": tune.uniform(0, 1), "c": 2, "d": {"e": 3}},
        "k": 1,
        "g": tune.choice([{"a": 1}]),
    }
    merged = merge_constants(space, {"x": 0.5, "m": {"y": 0.1}, "g": {"a": 1}, "extra": 9})
    assert merged == {"x": 0.5, "m": {"y": 0.1, "c": 2, "d": {"e": 3}}, "k": 1, "g": {"a": 1}, "extra": 9}
    assert merge_constants({}, {"a": 1}) == merge_constants(lambda trial: None, {"a": 1}) == {"a": 1}


def test_evaluated_params_are_the_searched_values_flat() -> None:
    space = {
        "lr": tune.uniform(0, 1),
        "m": {"w": tune.grid_search([1]), "c": 5},
        "l": [3, tune.randint(1, 2)],
        "k": "const",
        **BRANCHES,
    }
    config = resolve(space, "b")
    found = evaluated_params(space, config)
    assert {key: found[key] for key in ("lr", "m/w", "l/1")} == {"lr": config["lr"], "m/w": 1, "l/1": 1}
    assert found["optimizer/kind"] == config["optimizer"]["kind"]
    assert not {"k", "m/c", "l/0"} & set(found)
    assert evaluated_params({"k": 1}, {"k": 1, "new": {"a": 2}}) == {"new/a": 2}
    assert evaluated_params(lambda trial: None, {"a": {"b": 1}, "c": 2}) == {"a/b": 1, "c": 2}


def test_equal_spaces_have_equal_fingerprints() -> None:
    def make() -> dict[str, Any]:
        return {
            "x": tune.uniform(0, 1),
            "m": {"f": tune.sample_from(lambda c: c["x"])},
            "g": tune.grid_search([1, 2]),
            "o": object(),
        }

    assert fingerprint(make()) == fingerprint(make())
    assert fingerprint(make())["g"] == "grid_search([1, 2])"
    assert fingerprint({}) == {}


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ({"x": tune.uniform(0, 1)}, {"x": tune.uniform(0, 2)}, ["x: was uniform(0.0, 1.0), now uniform(0.0, 2.0)"]),
        (
            {"x": tune.uniform(1, 2)},
            {"x": tune.loguniform(1, 2)},
            ["x: was uniform(1.0, 2.0), now loguniform(1.0, 2.0)"],
        ),
        ({"x": tune.choice([1, 2])}, {"x": tune.choice([1, 3])}, ["x: was choice([1, 2]), now choice([1, 3])"]),
        ({"x": tune.grid_search([1])}, {"x": 1}, ["x: was grid_search([1]), now constant"]),
        ({"x": 1, "a": {"b": 2}}, {"x": 1}, ["a/b: was constant, now not there"]),
        ({"x": 1}, {"x": 1, "y": tune.randint(0, 2)}, ["y: was not there, now randint(0, 2)"]),
        ({"x": tune.sample_from(lambda: 1)}, {"x": tune.uniform(0, 1)}, ["x: was sample_from, now uniform(0.0, 1.0)"]),
        ({"epochs": 10}, {"epochs": 20}, []),
        ({"x": tune.sample_from(lambda: 1)}, {"x": tune.sample_from(lambda: 2)}, []),
    ],
)
def test_the_difference_of_two_spaces(old: dict[str, Any], new: dict[str, Any], lines: list[str]) -> None:
    assert space_difference(fingerprint(old), fingerprint(new)) == lines


def test_an_edited_function_is_one_warning() -> None:
    before = fingerprint({"x": tune.sample_from(lambda c: 1), "y": tune.uniform(0, 1)})
    after = fingerprint({"x": tune.sample_from(lambda c: 1 + 1), "y": tune.uniform(0, 1)})
    (line,) = space_warnings(before, after)
    assert "'x'" in line and "edited" in line
    assert space_warnings(before, before) == []


def test_searched_paths() -> None:
    assert searched_paths({"a": 1, "b": {"c": tune.uniform(0, 1), "d": [2, tune.grid_search([1])]}}) == ["b/c", "b/d/1"]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ({"c": {"epochs": 10}}, {"c": {"epochs": 20}}, "the constant at 'c/epochs' was 10 and is 20: "),
        ({"p": "a"}, {"p": None}, "the constant at 'p' was 'a' and is None: "),
        ({"p": [1, (2, 3)]}, {"p": [1, (2, 4)]}, "the constant at 'p' was [1, (2, 3)] and is [1, (2, 4)]: "),
        ({"p": "x" * 100 + "1"}, {"p": "x" * 100 + "2"}, "the constant at 'p' was 'xxx"),
    ],
)
def test_a_changed_constant_is_no_difference_but_told_with_both_values(old: Any, new: Any, line: str) -> None:
    before, after = fingerprint(old), fingerprint(new)
    assert space_difference(before, after) == []
    (said,) = space_warnings(before, after)
    assert said.startswith(line) and said.endswith("new trials get it, the others keep theirs") and len(said) < 300
    assert space_warnings(before, before) == []


def test_constants_that_cannot_be_told_apart_are_not_compared() -> None:
    assert space_warnings(fingerprint({"p": object()}), fingerprint({"p": object()})) == []
