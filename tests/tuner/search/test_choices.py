"""Choices and functions as domains."""

from __future__ import annotations

from typing import Any

import pytest

import tuner as tune
from tuner.error import SettingError
from tuner.search.sample import BaseSampler, Categorical


class Last(BaseSampler):
    """Always takes the last one."""

    def sample(self, domain: Any, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        return domain.categories[-1]


def test_a_sampler_of_ones_own_chooses_among_the_categories() -> None:
    domain = Categorical([{"a": 1}, {"b": tune.uniform(0, 1)}])
    domain.set_sampler(Last())
    assert domain.index_at(0.0) == 1
    with pytest.raises(SettingError, match="chosen already"):
        domain.set_sampler(Last())
    assert domain.domain_str.startswith("[{'a': 1}")


def test_a_sampler_that_gives_another_value_is_named() -> None:
    class Wrong(Last):
        def sample(self, domain: Any, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
            return "z"

    domain = Categorical(["a"])
    domain.set_sampler(Wrong())
    with pytest.raises(SettingError, match="Wrong gave 'z', which is not a value of"):
        domain.at(0.5)


@pytest.mark.parametrize(
    ("function", "config", "value"),
    [
        (lambda spec: spec.config.x * 2, {"x": 2}, 4),
        (lambda spec: spec.config.m.y, {"m": {"y": 3}}, 3),
        (lambda config: config["x"], {"x": 1}, 1),
        (lambda: 7, None, 7),
    ],
)
def test_a_function_sees_the_config_that_it_is_sampled_with(function: Any, config: Any, value: int) -> None:
    domain = tune.sample_from(function)
    assert domain.sample(config) == domain.sample(spec=config) == value
    assert domain.is_function() and not domain.is_grid()


def test_each_of_several_values_has_its_own_config() -> None:
    assert tune.sample_from(lambda c: c["x"]).sample([{"x": 1}, {"x": 2}], size=2) == [1, 2]
