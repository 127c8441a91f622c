"""Each kind of value that JSON lacks: what is written, and what is read of it."""

from __future__ import annotations

import datetime
import decimal
import math
import pathlib
import threading
import uuid
import zoneinfo
from collections import OrderedDict
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainables.harness import MemoryBlobs
from trainables import tagged, tagged_kinds
from trainables.errors import MetricError
from trainables.tagged_kinds import label_of


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


TEXT = st.text(st.characters(), max_size=8)  # lone surrogates too
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "str": TEXT,
    "int": st.integers(-(2**200), 2**200),
    "float": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=20),
    "bytearray": st.binary(max_size=20).map(bytearray),
    "complex": st.complex_numbers(allow_nan=False),
    "range": st.builds(range, st.integers(), st.integers(), st.integers().filter(bool)),
    "path": TEXT.filter(lambda text: "\0" not in text).map(pathlib.Path),
    "posixpath": TEXT.filter(lambda text: "\0" not in text).map(pathlib.PurePosixPath),
    "windowspath": st.sampled_from(["C:\\x", "a/b", "\\\\host\\share\\x", ""]).map(pathlib.PureWindowsPath),
    "datetime": (st.datetimes() | st.datetimes(timezones=st.just(datetime.UTC))).map(lambda at: at.replace(fold=0)),
    "date": st.dates(),
    "time": st.times().map(lambda at: at.replace(fold=0)),
    "timedelta": st.timedeltas(),
    "decimal": st.decimals(allow_nan=False),
    "uuid": st.uuids(),
    "tuple": st.tuples(st.integers(), TEXT),
    "set": st.sets(TEXT, max_size=4),
    "frozenset": st.frozensets(st.integers(), max_size=4),
    "dict": st.dictionaries(st.integers() | TEXT | st.tuples(st.integers()), st.integers(), max_size=4),
    "odict": st.lists(st.tuples(TEXT, st.integers()), max_size=4).map(OrderedDict),
}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_every_value_of_a_kind_comes_back_as_what_it_was(kind: str, data: st.DataObject) -> None:
    value = data.draw(KINDS[kind])

    written = tagged.dumps({"value": [value]})
    read = tagged.loads(written)["value"][0]

    assert read == value and type(read) is type(value)
    assert repr(read) == repr(value) or isinstance(value, set | frozenset)
    orjson.loads(written)  # it is JSON whoever reads it


def test_every_kind_that_is_written_is_read_and_the_other_way_round() -> None:
    written = {tagged_kinds.WRITERS[kind](example)[0] for kind, example in EXAMPLES.items()}

    assert set(EXAMPLES) == set(tagged_kinds.WRITERS)
    assert written <= set(tagged_kinds.READERS) | tagged_kinds.BLOBS
    assert set(tagged_kinds.READERS) - written == {
        "str", "float", "int", "dict", "odict", "tuple", "set", "frozenset", "np", "ndarray",
    }  # fmt: skip


EXAMPLES: dict[type, Any] = {
    bytes: b"", bytearray: bytearray(), complex: 0j, range: range(3), type(pathlib.Path()): pathlib.Path("a"),
    pathlib.PurePosixPath: pathlib.PurePosixPath("a"), pathlib.PureWindowsPath: pathlib.PureWindowsPath("a"),
    datetime.datetime: datetime.datetime(2020, 1, 1), datetime.date: datetime.date(2020, 1, 1),
    datetime.time: datetime.time(1), datetime.timedelta: datetime.timedelta(1), decimal.Decimal: decimal.Decimal(1),
    uuid.UUID: uuid.UUID(int=1), tagged.BlobRef: tagged.BlobRef("0" * 64),
}  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [
        datetime.datetime(2020, 10, 25, 2, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
        datetime.datetime(2020, 7, 1, tzinfo=zoneinfo.ZoneInfo("America/New_York")),
        datetime.time(2, 30, fold=1),
    ],
)
def test_a_time_with_rules_of_a_zone_keeps_them_where_there_is_a_blob(value: Any) -> None:
    """An offset is not a zone: a day later it may be another one."""
    blobs = MemoryBlobs()

    read = tagged.loads(tagged.dumps(value, blobs=blobs), blobs=blobs)

    assert (read, read.fold, read.tzinfo) == (value, value.fold, value.tzinfo)
    assert isinstance(tagged.loads(tagged.dumps(value)), type(value)), "as a metric its offset is enough"


@given(
    st.sampled_from(["?", "i1", "u8", "<f2", ">f4", "f8", "c16", "U3", "S4", "M8[s]", "m8[ms]"]),
    st.lists(st.integers(0, 3), max_size=3),
    st.binary(min_size=500, max_size=500),
)
def test_an_array_of_every_dtype_and_shape_comes_back(dtype: str, shape: list[int], content: bytes) -> None:
    size = math.prod(shape)
    plain = np.frombuffer(content, dtype=np.uint8)[:size].reshape(shape) % 100
    array = plain.astype(np.int64).astype(dtype) if dtype[0] not in "US" else plain.astype(str).astype(dtype)

    read = tagged.loads(tagged.dumps(array))

    assert (read.dtype, read.shape) == (array.dtype, array.shape)
    assert read.tobytes() == array.tobytes()


def test_arrays_of_objects_and_subclasses_are_blobs_or_named() -> None:
    blobs = MemoryBlobs()
    for array in (np.array([{1}, "a"], dtype=object), np.ma.array([1, 2], mask=[0, 1]), np.rec.array([(1, "x")])):
        read = tagged.loads(tagged.dumps({"a": array}, blobs=blobs), blobs=blobs)["a"]
        assert type(read) is type(array) and read.tolist() == array.tolist()
        with pytest.raises(MetricError, match="^a is a numpy"):
            tagged.dumps({"a": array})


@pytest.mark.parametrize(("levels", "accepted"), [(60, True), (500, False)])
def test_how_deep_values_may_lie_has_an_end_that_is_said(levels: int, accepted: bool) -> None:
    for wrap in (lambda inner: [inner], lambda inner: {"k": inner}, lambda inner: (inner,), lambda inner: {1: inner}):
        value: Any = 1.5e300
        for _ in range(levels):
            value = wrap(value)
        if accepted:
            assert tagged.loads(tagged.dumps(value)) == value
        else:
            with pytest.raises(MetricError, match="is nested deeper than 60 levels, or contains itself"):
                tagged.dumps(value)


def test_values_are_called_what_they_are() -> None:
    assert [label_of(each) for each in (threading.Lock(), MemoryBlobs, MemoryBlobs(), math.floor)] == [
        "_thread.lock",
        "tests.trainables.harness.MemoryBlobs",
        "tests.trainables.harness.MemoryBlobs",
        "math.floor",
    ]
