"""When two configs are the same."""

from __future__ import annotations

import math
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables import tagged
from tuner.experiment.blobs import Blobs
from tuner.experiment.config_key import config_key

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([b"x", Path("a"), 1 + 2j, math.inf])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(0, 3), inner, max_size=3)
        | st.sets(st.integers() | st.text(max_size=3), max_size=3)
    ),
    max_leaves=12,
)
CONFIGS = st.dictionaries(st.text(max_size=4), VALUES, max_size=4)


def key(config: Any, blobs: Any = None) -> bytes:
    return config_key(tagged.dumps(config, blobs=blobs))


def otherwise(value: Any) -> Any:
    """The same value in another form: keys in another order, numbers of numpy."""
    if isinstance(value, dict):
        return dict(reversed([(name, otherwise(item)) for name, item in value.items()]))
    if isinstance(value, (list, tuple)):
        return type(value)(map(otherwise, value))
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return np.int64(value)
    return np.float64(value) if isinstance(value, float) else value


def value_of(value: Any) -> Any:
    """What makes a value this one, as Python says it, types included."""
    if isinstance(value, dict):
        return frozenset((value_of(name), value_of(item)) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return (type(value), *map(value_of, value))
    if isinstance(value, set):
        return ("set", frozenset(map(value_of, value)))
    return (type(value), repr(value))


@given(CONFIGS)
def test_order_of_keys_and_numpy_do_not_count(config: dict[str, Any]) -> None:
    assert key(config) == key(otherwise(config))


@given(CONFIGS, CONFIGS)
def test_two_configs_have_one_key_where_they_are_the_same_value(one: dict[str, Any], two: dict[str, Any]) -> None:
    assert (key(one) == key(two)) == (value_of(one) == value_of(two))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_count_to_the_last_bit(number: float) -> None:
    after = math.nextafter(number, math.inf)
    assert key({"lr": number}) != key({"lr": after})
    assert key({"lr": np.float32(0.1)}) != key({"lr": 0.1}), "it is another number"
    assert key({"lr": np.float32(0.5)}) == key({"lr": 0.5})


@pytest.mark.parametrize(
    ("one", "two"), [(1, 1.0), (1, True), (0.0, -0.0), ([1], (1,)), ("1", 1), (None, "None"), ({"a": {}}, {"a": []})]
)
def test_what_a_trainable_could_tell_apart_is_not_the_same(one: Any, two: Any) -> None:
    assert key({"x": one}) != key({"x": two})


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (OrderedDict(a=1, b=2), {"b": 2, "a": 1}),
        ({1: "a", "b": 2}, {"b": 2, np.int64(1): "a"}),
        (np.str_("relu"), "relu"),
        ({np.int64(2), 1}, frozenset({1, 2})),
    ],
)
def test_other_forms_of_one_value(one: Any, two: Any) -> None:
    assert key({"x": one}) == key({"x": two})


def test_what_is_large_or_pickled_is_told_by_its_bytes_and_not_opened(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    one, two = np.arange(20_000), np.arange(20_000) + 1
    keys = [key({"data": array, "f": function}, blobs) for array in (one, two) for function in (len, max)]
    assert len(set(keys)) == 4
    for blob in (tmp_path / "blobs").iterdir():
        blob.write_bytes(b"nobody reads it")
    assert key({"data": one.copy(), "f": len}, Blobs(tmp_path / "others")) == keys[0]
