"""Search spaces as YAML has them."""

from __future__ import annotations

from typing import Any

import pytest

import tuner as tune
from tuner.cli import yaml_space
from tuner.error import SettingError


@pytest.mark.parametrize(
    ("found", "meant"),
    [
        ({"uniform": [0, 1]}, tune.uniform(0, 1)),
        ({"uniform": {"lower": 0, "upper": 1}}, tune.uniform(0, 1)),
        ({"quniform": [0, 1, 0.25]}, tune.quniform(0, 1, 0.25)),
        ({"loguniform": ["1e-4", "1e-1"]}, tune.loguniform(1e-4, 1e-1)),
        ({"qloguniform": [1, 100, 1]}, tune.qloguniform(1, 100, 1)),
        ({"randn": [0, 1]}, tune.randn(0, 1)),
        ({"qrandn": [0, 1, 0.5]}, tune.qrandn(0, 1, 0.5)),
        ({"randint": [1, 9]}, tune.randint(1, 9)),
        ({"qrandint": [0, 8, 2]}, tune.qrandint(0, 8, 2)),
        ({"lograndint": [1, 100]}, tune.lograndint(1, 100)),
        ({"qlograndint": [2, 64, 2]}, tune.qlograndint(2, 64, 2)),
        ({"choice": ["a", "b"]}, tune.choice(["a", "b"])),
        ({"grid_search": [1, 2]}, tune.grid_search([1, 2])),
    ],
)
def test_a_domain_is_its_name_and_its_arguments(found: Any, meant: Any) -> None:
    assert repr(yaml_space.parse(found)) == repr(meant)


@pytest.mark.parametrize(
    ("found", "meant"),
    [
        (3, 3),
        ("adam", "adam"),
        ("1e-3", 0.001),
        ("1e", "1e"),
        ([1, "2e0"], [1, 2.0]),
        ({"a": 1, "uniform": [0, 1]}, {"a": 1, "uniform": [0, 1]}),
        ({"literal": {"uniform": [0, 1]}}, {"uniform": [0, 1]}),
        ({"literal": "1e-3"}, "1e-3"),
        (None, None),
        (True, True),
    ],
)
def test_everything_else_is_itself(found: Any, meant: Any) -> None:
    assert yaml_space.parse(found) == meant


def test_domains_are_found_at_any_depth() -> None:
    parsed = yaml_space.parse(
        {"model": {"layers": [{"width": {"randint": [1, 9]}}]}, "branch": {"choice": [{"x": {"uniform": [0, 1]}}]}}
    )

    assert repr(parsed["model"]["layers"][0]["width"]) == repr(tune.randint(1, 9))
    assert repr(tune.uniform(0, 1)) in repr(vars(parsed["branch"])) or "uniform" in repr(parsed["branch"])


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"x": {"loguniform": [0, 1]}}, "param_space.x: loguniform"),
        ({"x": {"uniform": [1, 0]}}, "param_space.x: uniform"),
        ({"x": {"uniform": {"low": 0, "upper": 1}}}, "it takes lower, upper"),
        ({"x": [{"randint": "many"}]}, "param_space.x[0]: randint"),
    ],
)
def test_a_domain_that_cannot_be_is_named_with_its_place(found: Any, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        yaml_space.parse(found)

    assert message in str(caught.value)
