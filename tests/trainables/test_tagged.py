"""Tagged JSON: what comes back is what went in."""

from __future__ import annotations

import datetime
import decimal
import enum
import functools
import math
import operator
import pathlib
import subprocess
import sys
import threading
import uuid
from collections import OrderedDict, defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainables.harness import MemoryBlobs
from tests.tuner.schedulers.calls import count_calls
from trainables import tagged
from trainables.errors import MetricError
from trainables.plain_metrics import plain_metrics


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Point:
    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and self.x == other.x


VALUES = {
    "tuple": (1, (2, "x"), []),
    "int keys": {1: "a", 2: {3: "b"}},
    "mixed keys": {1: "a", "1": "b", None: "c", (1, 2): "d", 2.5: "e"},
    "a key that is a tag": {"$": "tuple", "v": [1]},
    "nested tag key": {"a": [{"$": 1}]},
    "infinities": [math.inf, -math.inf],
    "infinity in a dict": {"a": math.inf, "b": None},
    "none": {"a": None},
    "negative zero": -0.0,
    "large int": 2**80,
    "negative large int": -(2**63) - 1,
    "64 bits": [2**63, 2**64 - 1, -(2**63)],
    "set": {1, 2, 3},
    "set of tuples": {(1, 2), (3, 4)},
    "frozenset": frozenset({"a", "b"}),
    "bytes": b"\x00\xff",
    "bytearray": bytearray(b"abc"),
    "path": pathlib.Path("/a/b"),
    "relative path": pathlib.Path("a"),
    "windows path": pathlib.PureWindowsPath("C:\\x"),
    "complex": complex(1, math.inf),
    "range": range(0, 2**70, 3),
    "datetime": datetime.datetime(2020, 1, 2, 3, 4, 5, 6, datetime.UTC),
    "date": datetime.date(2020, 1, 2),
    "time": datetime.time(1, 2, 3),
    "timedelta": datetime.timedelta(days=-1, microseconds=3),
    "decimal": decimal.Decimal("1.10"),
    "uuid": uuid.UUID(int=7),
    "ordered": OrderedDict([("b", 1), ("a", 2)]),
    "lone surrogate": "\ud800",
    "lone surrogate key": {"\ud800": 1},
    "unicode": "naïve 🎉",
    "enum": Colour.RED,
    "int enum": Level.LOW,
    "class": Point,
    "object": Point(3),
    "builtin function": operator.add,
    "builtin type": int,
    "defaultdict": defaultdict(list, a=[1]),
    "deep": {"a": [{"b": (1, {"c": {4}})}]},
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_t06_a_value_comes_back_equal_and_of_its_type(value: Any) -> None:
    blobs = MemoryBlobs()
    read = tagged.loads(tagged.dumps(value, blobs=blobs), blobs=blobs)
    assert read == value
    assert type(read) is type(value)


def test_t06_nan_stays_nan_wherever_it_stands() -> None:
    read = tagged.loads(tagged.dumps({"a": math.nan, "b": [math.nan, 1], "c": (np.float32("nan"),), "d": None}))
    assert math.isnan(read["a"]) and math.isnan(read["b"][0]) and math.isnan(read["c"][0])
    assert read["d"] is None


def test_t06_callables_come_back_and_work() -> None:
    blobs, factor = MemoryBlobs(), 3
    value = {"f": lambda x: x * factor, "p": functools.partial(operator.mul, 2)}
    read = tagged.loads(tagged.dumps(value, blobs=blobs), blobs=blobs)
    assert read["f"](5) == 15 and read["p"](5) == 10


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.just("$") | st.integers(), inner)
        | st.sets(st.integers())
    ),
    max_leaves=20,
)


def typed(value: Any) -> Any:
    """The value with every type in it, so that 1, 1.0 and True differ."""
    if isinstance(value, dict):
        return dict, [(typed(key), typed(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [typed(item) for item in value]
    return type(value), value if isinstance(value, (str, set)) else repr(value)


@given(plain)
def test_t06_anything_built_of_plain_things_comes_back_equal(value: Any) -> None:
    assert typed(tagged.loads(tagged.dumps(value))) == typed(value)


class Bomb:
    """Its pickle fails the test when it is opened."""

    def __reduce__(self) -> Any:
        return (pytest.fail, ("a blob was unpickled by reading",))


def test_t06_reading_without_a_source_opens_no_blob() -> None:
    blobs = MemoryBlobs()
    data = tagged.dumps({"model": Bomb(), "lr": 0.1}, blobs=blobs)
    read = tagged.loads(data)
    assert read["lr"] == 0.1
    assert isinstance(read["model"], tagged.BlobRef) and "Bomb" in repr(read["model"])
    assert tagged.loads(tagged.dumps(read)) == read, "what was not opened is written as it was"
    assert blobs.opened == 0


def test_a_value_of_a_newer_kind_is_named() -> None:
    with pytest.raises(ValueError, match="'quaternion'"):
        tagged.loads(b'{"$":"quaternion","v":[]}')


def test_what_contains_itself_is_named() -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    with pytest.raises(MetricError, match="self/self"):
        tagged.dumps(loop)
    with pytest.raises(MetricError, match="self/self"):
        plain_metrics(loop)


@pytest.mark.parametrize(
    "value",
    [threading.Lock(), (i for i in ()), object(), Point(1), print, Colour.RED, sys],
    ids=lambda value: type(value).__name__,
)
def test_a_metric_that_cannot_be_written_is_named_with_its_key(value: Any) -> None:
    with pytest.raises(MetricError, match="eval/model"):
        plain_metrics({"loss": 1.0, "eval": {"model": value}})


def test_scalars_of_numpy_become_numbers_in_metrics() -> None:
    read = plain_metrics(
        {
            "a": np.float32(0.5),
            "b": {"c": np.int64(3)},
            "d": [np.bool_(True)],
            "e": np.array(2.0),
            "f": (np.float64(1.5),),
        }
    )
    assert read == {"a": 0.5, "b": {"c": 3}, "d": [True], "e": 2.0, "f": (1.5,)}
    assert [type(read["a"]), type(read["b"]["c"]), type(read["d"][0]), type(read["e"])] == [float, int, bool, float]
    assert type(read["f"][0]) is float


def test_everything_json_or_its_tags_hold_may_be_a_metric() -> None:
    metrics = {
        "s": "x",
        "n": None,
        "b": True,
        "l": [1, "a"],
        "nan": math.inf,
        "t": (1,),
        "set": {1},
        "p": pathlib.Path("a"),
    }
    assert plain_metrics(metrics) == metrics
    assert tagged.loads(tagged.dumps(plain_metrics(metrics))) == metrics


def test_an_int_enum_is_its_number_in_metrics() -> None:
    assert type(plain_metrics({"a": Level.LOW})["a"]) is int


def test_a_numpy_array_may_be_a_metric() -> None:
    read = tagged.loads(tagged.dumps(plain_metrics({"confusion": np.eye(2)})))
    assert np.array_equal(read["confusion"], np.eye(2))


@pytest.mark.torch
def test_scalars_of_torch_become_numbers_in_metrics() -> None:
    torch = pytest.importorskip("torch")
    read = plain_metrics(
        {
            "a": torch.tensor(0.5, requires_grad=True),
            "b": torch.tensor(3),
            "c": torch.tensor(1.5, dtype=torch.bfloat16),
            "d": torch.tensor([1.0, 2.0]),
        }
    )
    assert read == {"a": 0.5, "b": 3, "c": 1.5, "d": [1.0, 2.0]}
    assert [type(read["a"]), type(read["b"])] == [float, int]


def test_plain_metrics_does_not_change_what_it_was_given() -> None:
    metrics = {"a": {"b": np.float32(1)}}
    plain_metrics(metrics)["a"]["b"] = 5
    assert type(metrics["a"]["b"]) is np.float32


def test_the_values_of_a_flat_result_call_no_function_each() -> None:
    def calls(numbers: int) -> int:
        return count_calls(lambda: tagged.dumps({str(index): index * 1.25 for index in range(numbers)}))

    assert calls(1000) - calls(10) < 10


def test_reading_and_writing_imports_nothing_heavy() -> None:
    code = "import sys; from trainables import tagged; tagged.loads(tagged.dumps({'a': (1,)}))\n"
    code += "print([m for m in ('numpy', 'torch', 'cloudpickle') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("half", ["\ud800", "a\udfffb"])
def test_a_name_with_half_of_a_character_is_refused_alone(half: str) -> None:
    with pytest.raises(MetricError) as no:
        plain_metrics({"loss": 1.0, "\U0001f600": 2, half: 3, "acc": 4})
    assert repr(half) in str(no.value) and "loss" not in str(no.value) and "acc" not in str(no.value)
