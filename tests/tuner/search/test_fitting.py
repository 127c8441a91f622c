"""Configs beside search spaces: whether one fits, and where it does not."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tuner as tune
from tuner.error import SettingError
from tuner.search.fitting import check_names, fits, misfit
from tuner.search.resolve import Space

THERE = {
    "lr": tune.uniform(0, 1),
    "m": {"opt": tune.choice([{"kind": "sgd", "mu": tune.uniform(0, 1)}, {"kind": "adam"}])},
    "l": [tune.randint(0, 3), 5],
    "f": tune.sample_from(len),
    "k": "constant",
}
GOOD = {"lr": 0.5, "m": {"opt": {"kind": "adam"}}, "l": [1, 5], "f": 3, "k": "constant"}


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (GOOD, None),
        ({**GOOD, "k": "another", "f": None, "new": 1}, None),
        ({**GOOD, "m": {"opt": {"kind": "sgd", "mu": 0.2}}}, None),
        ({**GOOD, "l": (2,)}, None),
        ({**GOOD, "lr": 2.0}, r"lr=2\.0 is not a value of uniform\(0\.0, 1\.0\)"),
        ({**GOOD, "lr": "x"}, "lr='x' is not a value of"),
        ({**GOOD, "m": {"opt": {"kind": "sgd"}}}, r"m/opt=\{'kind': 'sgd'\} is not a value of choice"),
        ({**GOOD, "m": {"opt": {"kind": "adam", "mu": 1}}}, "m/opt=.* is not a value of choice"),
        ({**GOOD, "m": 3}, "it has no m/opt"),
        ({**GOOD, "l": []}, "it has no l/0"),
        ({**GOOD, "l": {"0": 1}}, "it has no l/0"),
        ({}, "it has no lr"),
    ],
)
def test_where_a_config_does_not_fit_a_space_is_said(config: Any, problem: str | None) -> None:
    found = misfit(Space(THERE).root, config)
    assert found is None if problem is None else found is not None and re.fullmatch(problem + ".*", found)


@pytest.mark.parametrize(
    ("value", "fitting"),
    [
        (GOOD, True),
        ({**GOOD, "k": "another"}, False),
        ({**GOOD, "new": 1}, False),
        ({**GOOD, "l": [1]}, False),
        ({**GOOD, "l": (1, 5)}, True),
        ({**GOOD, "lr": None}, False),
        (None, False),
    ],
)
def test_whether_a_value_can_have_come_from_a_subtree(value: Any, fitting: bool) -> None:
    assert fits(Space(THERE).root, value) is fitting


@pytest.mark.parametrize("point", [{"lrr": 1}, {"m": {"optt": 1}}])
def test_a_name_that_the_space_has_not_is_told_with_those_it_has(point: Any) -> None:
    root = Space(THERE).root
    check_names(root, GOOD, "")
    check_names(root, {"l": [9], "m": {"opt": {"whatever": 1}}}, "")
    with pytest.raises(SettingError, match=r"points_to_evaluate: '(lrr|m/optt)' is not in the search space, which has"):
        check_names(root, point, "")


@pytest.mark.parametrize(
    ("point", "problem"),
    [
        ({}, None),
        ({"lr": 0.2}, None),
        ({"m": {}}, None),
        ({"m": {"opt": {"kind": "sgd"}}}, "m/opt="),
        ({"l": [7]}, "l/0=7 is not a value of"),
    ],
)
def test_a_point_may_lack_names_but_has_no_wrong_values(point: Any, problem: str | None) -> None:
    found = misfit(Space(THERE).root, point, whole=False)
    assert found is None if problem is None else found is not None and found.startswith(problem)
