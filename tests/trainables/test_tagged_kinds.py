"""Each kind of value that JSON lacks: what is written, and what is read of it."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from tests.trainables.harness import MemoryBlobs
from trainables import tagged
from trainables.errors import MetricError


@pytest.mark.parametrize(
    "value",
    [np.float32(0.1), np.float64(0.1), np.float16(2.5), np.int64(2**62), np.uint8(255), np.bool_(True), np.str_("ä")]
    + [
        np.bytes_(b"x"),
        np.complex64(1 + 2j),
        np.longdouble("0.1"),
        np.datetime64("2020-01-02", "ns"),
        np.float32("inf"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_t06_a_numpy_scalar_in_a_config_comes_back_equal(value: Any) -> None:
    read = tagged.loads(tagged.dumps({"a": value}))["a"]
    assert read == value
    assert read.dtype == value.dtype and type(read) is type(value)


@pytest.mark.parametrize(
    "array",
    [np.arange(6.0).reshape(2, 3), np.array([], dtype=np.int8), np.zeros((0, 3)), np.array(["a", "bc"]), np.array(5)]
    + [np.arange(4, dtype=">i2"), np.asfortranarray(np.arange(6).reshape(2, 3)), np.array([True, False])],
    ids=str,
)
def test_t06_a_numpy_array_comes_back_equal(array: Any) -> None:
    read = tagged.loads(tagged.dumps([array]))[0]
    assert read.dtype == array.dtype and read.shape == array.shape
    assert np.array_equal(read, array)
    read.flags.writeable = True


def test_equal_sets_are_equal_text() -> None:
    assert tagged.dumps({"b", "a", "c"}) == tagged.dumps({"c", "b", "a"})


def test_large_arrays_go_into_a_blob_where_there_is_one() -> None:
    array = np.zeros(100_000)
    blobs = MemoryBlobs()
    data = tagged.dumps(array, blobs=blobs)
    assert len(data) < 300
    assert np.array_equal(tagged.loads(data, blobs=blobs), array)


def test_a_value_that_cannot_be_pickled_is_named_with_its_key() -> None:
    with pytest.raises(MetricError, match="model/0 is a _thread.lock and cannot be pickled"):
        tagged.dumps({"model": [threading.Lock()]}, blobs=MemoryBlobs())
