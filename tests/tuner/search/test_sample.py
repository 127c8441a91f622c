"""The vocabulary: which domain each name makes, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tuner as tune
from tuner.error import SettingError
from tuner.search.sample import Float, Integer


def test_numpy_bounds_become_plain_numbers() -> None:
    assert tune.uniform(np.float32(0), np.int64(2)) == Float(0.0, 2.0)
    assert tune.randint(np.int64(1), 1e3) == Integer(1, 1000)
    assert type(tune.randint(np.int64(1), 9).at(0.5)) is int


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tune.uniform(1, 1), "lower is not below upper"),
        (lambda: tune.uniform(2, 1), "uniform.2.0, 1.0."),
        (lambda: tune.uniform("a", 1), "lower='a'"),
        (lambda: tune.uniform(0, math.inf), "upper=inf"),
        (lambda: tune.uniform(True, 2), "lower=True"),
        (lambda: tune.loguniform(0, 1), "above 0 on a log scale"),
        (lambda: tune.loguniform(-4, -1), "not their logarithms"),
        (lambda: tune.quniform(0, 1, 0), "q=0"),
        (lambda: tune.quniform(0, 1, 0.3), "upper is not a multiple of q"),
        (lambda: tune.qloguniform(0.15, 1, 0.1), "lower is not a multiple of q"),
        (lambda: tune.randint(0.5, 3), "whole number"),
        (lambda: tune.randint(3, 3), "lower is not below upper"),
        (lambda: tune.lograndint(0, 3), "log scale"),
        (lambda: tune.qrandint(0, 3, 0), "q=0"),
        (lambda: tune.qrandint(1, 3, 5), "no multiple of q"),
        (lambda: tune.randn(0, 0), "sd=0"),
        (lambda: tune.qrandn(0, 1, -1), "q=-1"),
        (lambda: tune.choice([]), "nothing to choose"),
        (lambda: tune.choice(3), "sequence"),
        (lambda: tune.grid_search([]), "nothing to search"),
        (lambda: tune.grid_search(3), "sequence"),
        (lambda: tune.sample_from(3), "needs a function"),
        (lambda: tune.sample_from(lambda a, b: 1), "needs .a, b."),
    ],
)
def test_what_is_refused_and_why(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make()


def test_a_base_has_no_effect_and_says_so() -> None:
    with pytest.warns(UserWarning, match="base=2"):
        assert tune.loguniform(1, 2, base=2) == tune.loguniform(1, 2)
