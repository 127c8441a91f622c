"""Values that people put into checkpoints, configs and results, and whether two of them are the same."""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import math
import pathlib
import types
import uuid
import warnings
import zoneinfo
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

LARGE = 70_000
"""Bytes: a pickler hands over what is larger than 64 KiB as it is."""


class Colour(enum.Enum):
    RED = "red"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Point:
    x: float
    weights: Any = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and same(self.__dict__, other.__dict__)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    path: pathlib.Path


Pair = collections.namedtuple("Pair", "left right")


def _read_only(made: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    made.setflags(write=False)
    return made


def _frame(rows: int) -> pd.DataFrame:
    return pd.DataFrame({"a": np.arange(rows, dtype="f8"), "b": [f"row {n}" for n in range(rows)], "c": True})


def _shared() -> dict[str, torch.Tensor]:
    whole = torch.arange(LARGE, dtype=torch.float32)
    return {"whole": whole, "half": whole[: LARGE // 2], "every": whole[::7]}


def _csr() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "beta state"
        return torch.eye(4).to_sparse_csr()


def _half_complex() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "experimental"
        return torch.tensor(1 + 2j).to(torch.complex32)


def _trained() -> dict[str, Any]:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(8, 300), torch.nn.BatchNorm1d(300), torch.nn.Linear(300, 100))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


_columns = np.arange(LARGE, dtype="f8").reshape(-1, 10)

NUMPY: dict[str, Callable[[], Any]] = {
    "large": lambda: np.arange(LARGE),
    "large, by columns": lambda: np.asfortranarray(_columns),
    "large, read-only": lambda: _read_only(np.arange(LARGE)),
    "large, every other": lambda: np.arange(2 * LARGE)[::2],
    "large, backwards": lambda: np.arange(LARGE)[::-1],
    "large, transposed": lambda: _columns.T,
    "large, broadcast": lambda: np.broadcast_to(np.arange(10), (LARGE // 10, 10)),
    "large, other byte order": lambda: np.arange(LARGE, dtype=">i4"),
    "large datetimes": lambda: np.arange(LARGE).astype("M8[ns]"),
    "large records": lambda: np.zeros(LARGE // 8, dtype=[("a", "f4"), ("b", "i8", (3,)), ("c", "S3")]),
    "large texts": lambda: np.array([f"{n:010d}" for n in range(LARGE // 10)]),
    "large objects": lambda: np.array([{"n": n} for n in range(LARGE // 10)], dtype=object),
    "large, masked": lambda: np.ma.masked_greater(np.arange(LARGE), 10),
    "just 64 KiB": lambda: np.zeros(64 * 1024, dtype="u1"),
    "empty": lambda: np.zeros((0, 5), dtype="f4"),
    "empty by columns": lambda: np.zeros((5, 0), order="F"),
    "no dimension": lambda: np.array(2.5),
    "no dimension, an object": lambda: np.array({"a": 1}, dtype=object),
    "not a time": lambda: np.array(["NaT", "2020-01-01"], dtype="M8[s]"),
    "long double": lambda: np.longdouble("1.1"),
    "StringDType": lambda: np.array(["a", "bb"], dtype=np.dtypes.StringDType()),
    "a generator": lambda: np.random.default_rng(3).bit_generator.state,
    "a dtype": lambda: np.dtype("f4"),
}

PANDAS: dict[str, Callable[[], Any]] = {
    "a large frame": lambda: _frame(LARGE // 8),
    "a frame of one block": lambda: pd.DataFrame(_columns, columns=list("abcdefghij")),
    "an empty frame": lambda: pd.DataFrame({"a": []}),
    "a series": lambda: pd.Series(np.arange(LARGE), name="n"),
    "a categorical": lambda: pd.Series(pd.Categorical(["a", "b", None, "a"], ordered=True)),
    "a MultiIndex": lambda: pd.Series(
        range(4), index=pd.MultiIndex.from_product([["x", "y"], [1, 2]], names=["k", "n"])
    ),
    "nullable integers": lambda: pd.Series([1, None, 3], dtype="Int64"),
    "nullable booleans": lambda: pd.Series([True, None], dtype="boolean"),
    "texts": lambda: pd.Series(["a", None, "ü"], dtype="string"),
    "zones": lambda: pd.Series(pd.date_range("2020-03-28", periods=50, freq="h", tz="Europe/Berlin")),
    "periods": lambda: pd.Series(pd.period_range("2020-01", periods=3, freq="M")),
    "intervals": lambda: pd.Series(pd.interval_range(0, 3)),
    "sparse": lambda: pd.Series(pd.arrays.SparseArray([0, 0, 1])),
    "a timestamp": lambda: pd.Timestamp("2020-01-01", tz="Europe/Berlin"),
    "nothing": lambda: [pd.NA, pd.NaT],
}

TORCH: dict[str, Callable[[], Any]] = {
    "large": lambda: torch.arange(LARGE, dtype=torch.float32),
    "bfloat16": lambda: torch.ones(LARGE, dtype=torch.bfloat16),
    "float8": lambda: torch.ones(3).to(torch.float8_e4m3fn),
    "uint16": lambda: torch.arange(3).to(torch.uint16).reshape(3, 1),
    "half complex": _half_complex,
    "conjugated": lambda: torch.tensor([1 + 2j, 3 - 4j]).conj(),
    "negated": lambda: torch.tensor([1 + 2j]).conj().imag,
    "sparse": lambda: torch.eye(4).to_sparse(),
    "sparse rows": _csr,
    "meta": lambda: torch.ones(2, 3, device="meta"),
    "empty": lambda: torch.empty(0, 3),
    "no dimension": lambda: torch.tensor(1.5),
    "transposed": lambda: torch.arange(6).reshape(2, 3).t(),
    "expanded": lambda: torch.ones(1).expand(LARGE),
    "shared": _shared,
    "a parameter": lambda: torch.nn.Parameter(torch.ones(3)),
    "with gradients": lambda: torch.ones(3, requires_grad=True),
    "a model and its optimizer": _trained,
    "random state": lambda: torch.Generator().manual_seed(3).get_state(),
    "dtype, device, size": lambda: [torch.float32, torch.device("cpu"), torch.Size([1, 2])],
}

PLAIN: dict[str, Callable[[], Any]] = {
    "no bytes": lambda: b"",
    "bytes": lambda: bytes(LARGE),
    "bytearray": lambda: bytearray(b"x" * LARGE),
    "a long text": lambda: "ü" * LARGE,
    "half a character": lambda: "\ud800",
    "array": lambda: array.array("d", range(LARGE)),
    "numbers": lambda: [2**100, -0.0, math.inf, math.nan, 1j, decimal.Decimal("1.10"), fractions.Fraction(1, 3)],
    "enums": lambda: [Colour.RED, Access.READ | Access.WRITE, Level.LOW],
    "dataclasses": lambda: [Point(1.0, np.arange(LARGE)), Frozen(pathlib.Path("/x"))],
    "a namedtuple": lambda: Pair(1, [2]),
    "paths": lambda: [pathlib.Path("a/b"), pathlib.PurePosixPath("/x"), pathlib.PureWindowsPath("c:/y")],
    "a time in a zone": lambda: datetime.datetime(2020, 7, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
    "the second 2:30 of a day": lambda: datetime.datetime(2020, 10, 25, 2, 30, fold=1),
    "times": lambda: [
        datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
        datetime.date(2020, 1, 1),
        datetime.time(1, 2, 3, 4),
        datetime.timedelta(days=-1, microseconds=1),
    ],
    "sets": lambda: [{1, (2, "x")}, frozenset({Colour.RED}), set()],
    "collections": lambda: [
        collections.OrderedDict(b=1, a=2),
        collections.defaultdict(list, {"a": [1]}),
        collections.Counter("aab"),
        collections.deque([1, 2], maxlen=3),
    ],
    "odd keys": lambda: {1: "a", None: "b", (1, 2): "c", Colour.RED: "d", "$": "e", 2.5: "f"},
    "others": lambda: [uuid.UUID(int=5), range(3), slice(1, 2), ..., int, math.sin, ValueError("x").args],
    "a namespace": lambda: types.SimpleNamespace(a=1, b=[2]),
}

OTHERS: dict[str, Callable[[], Any]] = {
    "scipy csr": lambda: scipy.sparse.random(2000, 2000, 0.01, format="csr", rng=np.random.default_rng(1)),
    "scipy coo array": lambda: scipy.sparse.coo_array(np.eye(5)),
    "scipy dok": lambda: scipy.sparse.dok_matrix(np.eye(3)),
    "an image": lambda: Image.fromarray(np.arange(LARGE * 3, dtype="u1").reshape(100, -1, 3)),
    "a grey image": lambda: Image.new("L", (3, 5), 7),
    "a palette": lambda: Image.new("P", (3, 5), 7),
}

GROUPS: dict[str, dict[str, Callable[[], Any]]] = {
    "numpy": NUMPY,
    "pandas": PANDAS,
    "torch": TORCH,
    "plain": PLAIN,
    "others": OTHERS,
}


def all_values() -> dict[str, Any]:
    """One of each."""
    return {f"{group}/{name}": make() for group, table in GROUPS.items() for name, make in table.items()}


def different(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The keys under which two dicts are not the same."""
    return [key for key in {**one, **other} if key not in one or key not in other or not same(one[key], other[key])]


# --- the same, with type, order, dtype and all ------------------------------------------------------------


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    for kind, compare in _COMPARE.items():
        if isinstance(one, kind):
            return compare(one, other)
    if one is pd.NA or one is pd.NaT:
        return one is other
    if isinstance(one, float):
        return repr(one) == repr(other)
    if isinstance(one, datetime.datetime):
        return (one, one.fold, str(one.tzinfo)) == (other, other.fold, str(other.tzinfo))
    return bool(one == other)


def _arrays(one: Any, other: Any) -> bool:
    if one.dtype.kind in "iufcUmM":  # of some layouts numpy's pickle brings the machine's own byte order
        one, other = (made.astype(made.dtype.newbyteorder("=")) for made in (one, other))
    if one.dtype.char in "gG":  # the rest of their bytes is not looked at
        return (one.dtype, repr(one)) == (other.dtype, repr(other))
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if isinstance(one, np.ma.MaskedArray):
        return _arrays(one.data, other.data) and _arrays(np.ma.getmaskarray(one), np.ma.getmaskarray(other))
    if one.dtype.hasobject or one.dtype.kind == "T":
        return same(one.tolist(), other.tolist())
    return bool(one.tobytes() == other.tobytes())


def _tensors(one: torch.Tensor, other: torch.Tensor) -> bool:
    about = [(t.dtype, t.layout, t.device, t.shape, t.requires_grad) for t in (one, other)]
    if about[0] != about[1]:
        return False
    if one.is_meta:
        return True
    if one.layout is not torch.strided:
        one, other = one.to_dense(), other.to_dense()
    both = [t.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format) for t in (one, other)]
    both = [t.flatten().view(torch.uint8) for t in both]
    return torch.equal(*both)


def _matrices(one: Any, other: Any) -> bool:
    return one.format == other.format and one.dtype == other.dtype and _arrays(one.toarray(), other.toarray())


def _tables(one: Any, other: Any) -> bool:
    check = pd.testing.assert_frame_equal if isinstance(one, pd.DataFrame) else pd.testing.assert_series_equal
    try:
        check(one, other, check_freq=False)
    except AssertionError:
        return False
    return True


def _dicts(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> bool:
    return list(one) == list(other) and all(same(one[key], other[key]) for key in one)


def _sequences(one: Any, other: Any) -> bool:
    return len(one) == len(other) and all(map(same, one, other))


_COMPARE: dict[Any, Callable[[Any, Any], bool]] = {
    (np.ndarray, np.generic): _arrays,
    torch.Size: lambda one, other: one == other,
    torch.Tensor: _tensors,
    (pd.DataFrame, pd.Series): _tables,
    (scipy.sparse.spmatrix, scipy.sparse.sparray): _matrices,
    Image.Image: lambda one, other: (one.mode, one.size, one.tobytes()) == (other.mode, other.size, other.tobytes()),
    Mapping: _dicts,
    (list, tuple): _sequences,
}


# --- drawn ------------------------------------------------------------------------------------------------


def _laid_out(draw: Callable[[Any], Any], made: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    how = draw(
        st.sampled_from(["as it is", "columns", "transposed", "backwards", "every other", "read-only", "repeated"])
    )
    if how == "columns":
        return np.asfortranarray(made)
    if how == "transposed":
        return made.T
    if how == "backwards":
        return made[tuple(slice(None, None, -1) for _ in made.shape)]
    if how == "every other":
        return made[tuple(slice(None, None, 2) for _ in made.shape)]
    if how == "read-only":
        return _read_only(made)
    if how == "repeated":
        return np.broadcast_to(made, (3, *made.shape))
    return made


@st.composite
def arrays(draw: Callable[[Any], Any], dtypes: Any = None) -> np.ndarray[Any, Any]:
    """Any dtype, order and strides; also far more than 64 KiB."""
    dtype = draw(
        st.one_of(
            hnp.scalar_dtypes(),
            hnp.array_dtypes(hnp.scalar_dtypes(), max_size=3),
            hnp.byte_string_dtypes(),
            hnp.unicode_string_dtypes(),
        )
        if dtypes is None
        else dtypes
    )
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    made = draw(hnp.arrays(dtype, shape))
    if made.ndim and draw(st.booleans()):  # what is large is not drawn, but made of what is
        made = np.repeat(made, 1 + LARGE // max(1, made.nbytes), axis=0) if made.nbytes else made
    return _laid_out(draw, made)


def nested(leaves: Any) -> Any:
    """Dicts, lists and tuples of what `leaves` draws."""
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.tuples(inner, inner),
            st.dictionaries(st.one_of(st.text(max_size=4), st.integers(), st.none()), inner, max_size=3),
        ),
        max_leaves=6,
    )
