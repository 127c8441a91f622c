"""Variants by hand: every combination of the grids, values by a seed, and what a spec has."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tuner as tune
from tuner.error import SettingError
from tuner.search.variant_generator import (
    RecursiveDependencyError,
    assign_value,
    count_spec_samples,
    flatten_resolved_vars,
    format_vars,
    generate_variants,
    get_preset_variants,
    parse_spec_vars,
    resolve_nested_dict,
)

SPEC: dict[str, Any] = {
    "run": "train",
    "config": {
        "layers": tune.grid_search([1, 2]),
        "act": tune.grid_search(["relu", "tanh"]),
        "lr": tune.uniform(0, 1),
        "twice": tune.sample_from(lambda spec: spec.config.lr * 2),
        "model": {"width": tune.choice([8, 16]), "bias": True},
    },
}


def test_each_combination_comes_once_with_what_was_searched() -> None:
    variants = list(generate_variants(SPEC, random_state=1))
    assert sorted((spec["config"]["layers"], spec["config"]["act"]) for _, spec in variants) == [
        (1, "relu"),
        (1, "tanh"),
        (2, "relu"),
        (2, "tanh"),
    ]
    assert len(variants) == count_spec_samples(SPEC) == 4
    for found, spec in variants:
        assert spec["run"] == "train" and spec["config"]["model"]["bias"] is True
        assert spec["config"]["twice"] == spec["config"]["lr"] * 2 == found["config", "twice"]
        assert found["config", "model", "width"] == spec["config"]["model"]["width"]
        assert set(flatten_resolved_vars(found)) == {"layers", "act", "lr", "twice", "model/width"}
    assert len({spec["config"]["lr"] for _, spec in variants}) == 4


def test_a_seed_repeats_them_and_constant_values_are_the_same_for_all() -> None:
    assert list(generate_variants(SPEC, random_state=1)) == list(generate_variants(SPEC, random_state=1))
    constant = [spec["config"]["lr"] for _, spec in generate_variants(SPEC, constant_grid_search=True)]
    assert len(constant) == 4 and len(set(constant)) == 1


def test_a_preset_takes_the_place_of_a_domain() -> None:
    for found, spec in get_preset_variants(SPEC, {"lr": 0.5}):
        assert spec["config"]["lr"] == found["config", "lr"] == 0.5 and spec["config"]["twice"] == 1.0


def test_what_a_spec_has_is_told_apart() -> None:
    fixed, domains, grids = parse_spec_vars(SPEC)
    assert dict(fixed) == {("run",): "train", ("config", "model", "bias"): True}
    assert {path: domain.is_valid(0.5) for path, domain in domains if path[-1] == "lr"} == {("config", "lr"): True}
    assert [(path, tuple(grid.categories), grid.is_grid()) for path, grid in grids] == [
        (("config", "act"), ("relu", "tanh"), True),
        (("config", "layers"), (1, 2), True),
    ]


def test_functions_in_a_circle_are_an_error_of_their_own() -> None:
    circle = {"a": tune.sample_from(lambda spec: spec.b), "b": tune.sample_from(lambda spec: spec.a)}
    with pytest.raises(RecursiveDependencyError, match="in a circle: a -> b -> a") as caught:
        list(generate_variants(circle))
    assert isinstance(caught.value, SettingError)


def test_a_tag_names_the_last_part_of_each_path() -> None:
    assert format_vars({("config", "lr"): 0.1, ("config", "m", "act"): "a b/c", "run": "x"}) == "lr=0.1000,act=a_b_c"


paths = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(tuple)


@given(st.dictionaries(st.sampled_from("abc"), st.integers() | st.dictionaries(st.sampled_from("abc"), st.integers())))
def test_a_nested_dict_is_put_together_again_from_its_paths(nested: dict[str, Any]) -> None:
    made: dict[str, Any] = {}
    for path, value in resolve_nested_dict(nested).items():
        assign_value(made, path, value)
    assert made == {key: value for key, value in nested.items() if value != {}}
