"""What each domain gives, that bounds are exact, and its text."""

from __future__ import annotations

import math
import random
from enum import Enum
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tuner as tune
from tuner.error import SettingError
from tuner.search.domains import Categorical, Domain, NormalFloat, describe, same

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


MAKERS = st.one_of(
    st.builds(lambda low, width: tune.uniform(low, low + width), st.floats(-1e6, 1e6), st.floats(0.5, 1e6)),
    st.builds(lambda low, ratio: tune.loguniform(low, low * ratio), st.floats(1e-6, 1e3), st.floats(1.5, 1e6)),
    st.builds(
        lambda low, count: tune.quniform(low / 4, (low + count) / 4, 0.25), st.integers(-9, 9), st.integers(1, 99)
    ),
    st.builds(lambda low, width: tune.randint(low, low + width), st.integers(-1000, 1000), st.integers(1, 1000)),
    st.builds(lambda low, width: tune.lograndint(low, low + width), st.integers(1, 1000), st.integers(1, 1000)),
    st.builds(lambda low, q: tune.qrandint(low, low + 5 * q, q), st.integers(-20, 20), st.integers(1, 9)),
    st.builds(lambda low, q: tune.qlograndint(low, low + 5 * q, q), st.integers(1, 20), st.integers(1, 9)),
    st.builds(tune.randn, st.floats(-10, 10), st.floats(0.1, 10)),
    st.builds(tune.qrandn, st.floats(-10, 10), st.floats(0.1, 10), st.sampled_from([0.1, 0.5, 3.0])),
)
UNITS = st.floats(0, 1, exclude_max=True)


@given(MAKERS, UNITS, UNITS)
def test_a_larger_number_never_gives_a_smaller_value_and_all_are_valid(domain: Any, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert domain.at(low) <= domain.at(high)
    assert domain.is_valid(domain.at(low)) and domain.is_valid(domain.at(high))
    assert domain.quantize(domain.at(one)) == domain.at(one)


@given(MAKERS, st.floats(-1e9, 1e9))
def test_what_is_meant_by_a_number_is_a_value_and_means_itself(domain: Any, value: float) -> None:
    meant = domain.quantize(value)
    assert domain.is_valid(meant)
    assert domain.quantize(meant) == meant


@given(MAKERS)
def test_the_text_of_a_domain_makes_it_again(domain: Domain) -> None:
    assert eval(str(domain), vars(tune)) == domain


@given(st.floats(-10, 10), st.floats(0.1, 10), st.floats(1e-6, 1 - 1e-6))
def test_a_quantile_is_the_number_that_gives_the_value(mean: float, sd: float, u: float) -> None:
    domain = NormalFloat(mean, sd)
    assert domain.quantile(domain.at(u)) == pytest.approx(u, abs=1e-9)


NO_NUMBERS = [None, True, "3", math.nan, math.inf, 10**400, [3], object()]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=[type(value).__name__ + str(n) for n, value in enumerate(NO_NUMBERS)])
def test_what_is_no_finite_number_is_no_value(value: Any) -> None:
    for domain in (tune.uniform(0, 10), tune.randint(0, 10), tune.randn()):
        assert not domain.is_valid(value)


@pytest.mark.parametrize(
    ("domain", "valid", "invalid"),
    [
        (tune.uniform(1, 2), [1, 2, 1.5, np.float32(1.5)], [0.999, 2.001]),
        (tune.randint(1, 4), [1, 3, 3.0, np.int8(2)], [0, 4, 2.5]),
        (tune.qrandint(3, 21, 4), [4, 20], [2, 22, 4.5]),
        (tune.choice([1, "a", None, [2]]), [1, "a", None, [2]], [True, "b", [3], 2]),
    ],
    ids=str,
)
def test_values_are_told_from_others(domain: Domain, valid: list[Any], invalid: list[Any]) -> None:
    assert [domain.is_valid(value) for value in valid] == [True] * len(valid)
    assert [domain.is_valid(value) for value in invalid] == [False] * len(invalid)


def test_a_choice_is_a_sequence_of_its_categories() -> None:
    domain = Categorical(("a", "b", "c"))
    assert (len(domain), domain[0], domain[-1], list(domain)) == (3, "a", "c", ["a", "b", "c"])
    assert [domain.index_at(u) for u in (0.0, 0.34, 0.67, 1 - 2.0**-53)] == [0, 1, 2, 2]


def test_a_function_has_a_value_with_its_config_only() -> None:
    domain = tune.sample_from(len)
    assert domain.is_valid(object()) and str(domain) == "sample_from(len)"
    assert domain.sample(config={"a": 1, "b": 2}) == 2
    with pytest.raises(TypeError, match="together with the rest of its config"):
        domain.at(0.5)


def test_a_random_state_that_is_none_is_named() -> None:
    with pytest.raises(SettingError, match=r"random_state=1\.5 is not accepted; accepted are None, an int"):
        tune.uniform(0, 1).sample(random_state=1.5)


class Refuses:
    """Compares with nothing, as some values of users do."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "Refuses()"


def long(changed: int) -> Any:
    """An array that prints its ends only."""
    made = np.zeros(5000)
    made[changed] = 1.0
    return made


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (True, True, True),
        (0, False, False),
        ("a", "a", True),
        ([1, [2]], [1, [2]], True),
        (np.array([1, 2]), np.array([1, 2]), True),
        (np.array([1, 2]), np.array([1, 3]), False),
        (np.array([1, 2]), np.array([1, 2, 3]), False),
        (np.array([1, 2]), [1, 2], False),
        (np.array([]), np.array([]), True),
        (long(2000), long(2000), True),
        (long(2000), long(2001), False),
        (np.float64(0.5), 0.5, True),
        (pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [1]}), True),
        (pd.DataFrame({"a": [1]}), pd.DataFrame({"b": [1]}), False),
        (pd.Series([1, 2]), pd.Series([1, 3]), False),
        (Refuses(), Refuses(), True),
        (Refuses(), 3, False),
    ],
)
def test_equality_never_raises_and_never_answers_with_an_array(one: Any, other: Any, equal: bool) -> None:
    assert same(one, other) is equal
    assert same(other, one) is equal
    assert same(one, one) is True


@pytest.mark.torch
def test_tensors_are_compared_by_their_elements() -> None:
    import torch

    assert same(torch.tensor([1, 2]), torch.tensor([1, 2])) is True
    assert same(torch.tensor([1, 2]), torch.tensor([1, 3])) is False
    assert same(torch.tensor([1, 2]), torch.tensor([1, 2, 3])) is False


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({3, 1, 2}, "{1, 2, 3}"),
        (frozenset("ba"), "{'a', 'b'}"),
        ((1,), "(1)"),
        ({"a": [tune.randn(), b"x"]}, "{'a': [randn(0.0, 1.0), b'x']}"),
        (np.float64(0.5), "np.float64(0.5)"),
        (Refuses(), "Refuses()"),
        (lambda: 1, "<lambda>"),
    ],
    ids=["ints", "strings", "tuple", "domain", "numpy", "object", "function"],  # a set has another text in each process
)
def test_a_value_as_text_is_the_same_in_every_process(value: Any, text: str) -> None:
    assert describe(value).endswith(text)
    assert " at 0x" not in describe(value)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False), UNITS)
def test_bounds_however_far_apart_give_values_between_them(one: float, other: float, u: float) -> None:
    low, high = sorted((one, other))
    if low < high:
        assert low <= tune.uniform(low, high).at(u) <= high


@pytest.mark.parametrize(("u", "value"), [(0.0, -1e308), (0.5, 0.0)])
def test_bounds_whose_distance_is_no_float(u: float, value: float) -> None:
    assert tune.uniform(-1e308, 1e308).at(u) == value
