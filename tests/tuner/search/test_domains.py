"""What each domain gives, that bounds are exact, and its text."""

from __future__ import annotations

import math
import random
from enum import Enum
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tuner as tune
from tuner.search.sample import Domain

EDGES = (0.0, 2.0**-53, 0.5, 1 - 2.0**-53)


@pytest.mark.parametrize(
    ("domain", "lowest", "highest"),
    [
        (tune.uniform(-1, 3), -1.0, 3.0),
        (tune.quniform(0.1, 0.7, 0.1), 0.1, 0.7),
        (tune.loguniform(1e-4, 1e-1), 1e-4, 1e-1),
        (tune.qloguniform(0.5, 100, 0.5), 0.5, 100.0),
        (tune.randint(3, 7), 3, 6),
        (tune.qrandint(3, 20, 4), 4, 20),
        (tune.qrandint(1, 5), 1, 5),
        (tune.lograndint(1, 1000), 1, 999),
        (tune.qlograndint(8, 512, 8), 8, 512),
        (tune.qlograndint(1, 10, 1), 1, 10),
        (tune.choice("abc"), "a", "c"),
    ],
    ids=str,
)
def test_both_ends_come_and_nothing_beyond(domain: Domain, lowest: Any, highest: Any) -> None:
    assert domain.at(0.0) == lowest
    top = domain.at(1 - 2.0**-53)
    assert top == (pytest.approx(highest) if isinstance(highest, float) else highest)
    drawn = domain.sample(size=500, random_state=1)
    assert all(lowest <= value <= highest for value in [*drawn, top])
    assert all(type(value) is type(lowest) for value in drawn)


@settings(max_examples=300, deadline=None)
@given(
    st.integers(-50, 50),
    st.integers(1, 60),
    st.sampled_from([0.1, 0.25, 0.3, 1e-3, 7.0, 1e5]),
    st.floats(0, 1, exclude_max=True),
)
def test_quantised_floats_are_multiples_as_a_person_would_write_them(
    first: int, count: int, q: float, u: float
) -> None:
    from decimal import Decimal

    written = [float(Decimal(repr(q)) * step) for step in range(first, first + count + 1)]
    domain = tune.quniform(written[0], written[-1], q)
    assert domain.at(u) in written
    assert domain.at(0.0) == written[0]


def test_all_multiples_are_equally_likely_in_qrandint() -> None:
    drawn = tune.qrandint(0, 20, 5).sample(size=5000, random_state=2)
    assert {value: round(drawn.count(value) / 5000, 1) for value in sorted(set(drawn))} == dict.fromkeys(
        (0, 5, 10, 15, 20), 0.2
    )


def test_a_log_scale_gives_every_decade_its_share() -> None:
    for domain in (tune.loguniform(1, 1000), tune.lograndint(1, 1000)):
        drawn = domain.sample(size=6000, random_state=3)
        shares = [sum(low <= value < low * 10 for value in drawn) / 6000 for low in (1, 10, 100)]
        assert shares == pytest.approx([1 / 3] * 3, abs=0.03)


def test_randn() -> None:
    drawn = tune.randn(5, 2).sample(size=4000, random_state=4)
    assert np.mean(drawn) == pytest.approx(5, abs=0.15)
    assert np.std(drawn) == pytest.approx(2, abs=0.15)
    assert set(tune.qrandn(0, 1, 0.5).sample(size=500, random_state=4)) >= {-0.5, 0.0, 0.5}
    assert all(math.isfinite(tune.randn().at(u)) for u in EDGES)


@pytest.mark.parametrize(
    "state", [7, "seven", random.Random(7), np.random.default_rng(7), np.random.RandomState(7), np.int64(7), None]
)
def test_every_kind_of_random_state(state: Any) -> None:
    assert 0 <= tune.uniform(0, 1).sample(random_state=state) < 1


def test_a_sample_is_one_value_and_several_are_a_list() -> None:
    assert tune.choice([[1, 2]]).sample() == [1, 2]
    assert tune.randint(1, 2).sample(size=3) == [1, 1, 1]
    assert tune.sample_from(lambda config: config["x"] + 1).sample(config={"x": 1}) == 2


def test_domains_are_frozen_values() -> None:
    domain = tune.uniform(0, 1)
    assert domain == tune.uniform(0, 1) != tune.uniform(0, 2)
    with pytest.raises(AttributeError):
        domain.lower = 3


class Color(Enum):
    RED = 1


@pytest.mark.parametrize(
    ("domain", "text"),
    [
        (tune.uniform(0, 1), "uniform(0.0, 1.0)"),
        (tune.quniform(0, 1, 0.5), "quniform(0.0, 1.0, 0.5)"),
        (tune.loguniform(1, 2), "loguniform(1.0, 2.0)"),
        (tune.qloguniform(1, 2, 1), "qloguniform(1.0, 2.0, 1.0)"),
        (tune.randn(), "randn(0.0, 1.0)"),
        (tune.qrandn(0, 1, 0.1), "qrandn(0.0, 1.0, 0.1)"),
        (tune.randint(0, 5), "randint(0, 5)"),
        (tune.qrandint(0, 5, 5), "qrandint(0, 5, 5)"),
        (tune.lograndint(1, 5), "lograndint(1, 5)"),
        (tune.qlograndint(1, 5, 1), "qlograndint(1, 5, 1)"),
        (tune.choice([1, "a", (2, None), {"k": tune.randn()}]), "choice([1, 'a', (2, None), {'k': randn(0.0, 1.0)}])"),
        (tune.choice([math.sqrt, Color, object()]), "choice([math.sqrt, test_domains.Color, <builtins.object>])"),
    ],
    ids=str,
)
def test_a_domain_as_text_is_the_call_that_makes_it(domain: Domain, text: str) -> None:
    assert domain.describe().replace(Color.__module__, "test_domains") == text
