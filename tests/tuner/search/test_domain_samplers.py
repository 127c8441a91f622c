"""Samplers as objects, and the random states that they take."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tuner.search.domain_samplers import generator
from tuner.search.sample import BaseSampler, Float, Grid, LogUniform, Normal, Quantized, Sampler, Uniform


@pytest.mark.parametrize(
    ("sampler", "text"),
    [
        (BaseSampler(), "Base"),
        (Uniform(), "Uniform"),
        (LogUniform(2), "LogUniform"),
        (Normal(), "Normal"),
        (Grid(), "Grid"),
    ],
)
def test_a_sampler_is_told_by_its_name(sampler: Sampler, text: str) -> None:
    assert str(sampler) == text
    quantized = Quantized(sampler, 2)
    assert quantized.get_sampler() is quantized.sampler is sampler


def test_every_random_state_makes_a_generator_of_numpys() -> None:
    own = np.random.RandomState(1)
    assert generator(own) is own
    for state in (None, 3, np.int64(3), random.Random(3)):
        assert 0 <= generator(state).uniform() < 1
    assert generator(3).uniform() == generator(3).uniform() == np.random.default_rng(3).uniform()


def test_pythons_seed_holds_for_a_domain_without_a_random_state() -> None:
    drawn = []
    for _ in range(2):
        random.seed(5)
        drawn.append(Float(0, 1).sample(size=3))
    assert drawn[0] == drawn[1]
