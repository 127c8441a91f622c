"""Pickles of dict checkpoints: streamed, and errors that name the key or the disk."""

from __future__ import annotations

import errno
import io
import os
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables import pickling
from trainables.errors import CheckpointError
from trainables.store import fs

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4))
def test_a_dict_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any]) -> None:
    path = tmp_path_factory.mktemp("pickles") / "dict.pkl"

    pickling.write(data, path)

    with path.open("rb") as file:
        assert pickling.read(file, "x") == data


def test_what_is_large_is_written_without_a_second_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array, sizes = np.arange(1_000_000), []
    real = fs.write

    def noted(fd: int, data: Any) -> None:
        sizes.append(memoryview(data).nbytes)
        real(fd, data)

    monkeypatch.setattr(fs, "write", noted)
    pickling.write({"a": array}, tmp_path / "x", lambda value, file: pickle.Pickler(file, protocol=5).dump(value))

    assert max(sizes) == array.nbytes
    with (tmp_path / "x").open("rb") as file:
        assert np.array_equal(pickling.read(file, "x")["a"], array)


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"fine": 1, "lock": threading.Lock()}, r"the value of 'lock' \(lock\) in a dict checkpoint"),
        ({"a": {"b": [1, threading.Lock()]}}, r"the value of 'a/b/1' \(lock\) in a dict checkpoint"),
        ({"a": ({3: threading.Lock()},)}, r"the value of 'a/0/3' \(lock\)"),
        ({threading.Lock(): 1}, "a dict checkpoint cannot be pickled"),
    ],
)
def test_what_cannot_be_pickled_is_named_by_its_keys(tmp_path: Path, data: dict[Any, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=rf"{named}.*TypeError: cannot pickle '_thread.lock' object"):
        pickling.write(data, tmp_path / "x")


def test_what_lies_deep_is_named_as_far_as_one_looks(tmp_path: Path) -> None:
    data: Any = threading.Lock()
    for level in range(20):
        data = {f"k{level}": data}

    with pytest.raises(CheckpointError, match=r"'k19/k18/k17/k16/k15/k14/k13/k12' \(dict\)"):
        pickling.write(data, tmp_path / "x")


def test_a_full_disk_is_told_as_that_and_not_as_a_value_that_cannot_be_pickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, data: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def wraps(value: Any, file: Any) -> None:  # as torch.save does
        try:
            file.write(b"x")
        except OSError:
            raise RuntimeError("unexpected pos") from None

    monkeypatch.setattr(fs, "write", full)
    for dump in (None, wraps):
        with pytest.raises(OSError, match="No space left") as told:
            pickling.write({"a": 1}, tmp_path / f"{dump}", dump)
        assert told.value.errno == errno.ENOSPC


def test_the_file_is_closed_whatever_happens(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    for data in ({"a": 1}, {"a": threading.Lock()}):
        try:
            pickling.write(data, tmp_path / str(len(os.listdir(tmp_path))))
        except CheckpointError:
            pass

    assert len(os.listdir("/proc/self/fd")) == len(before)


class Harmful:
    def __setstate__(self, state: Any) -> None:
        raise ZeroDivisionError("of the user's class")

    def __getstate__(self) -> Any:
        return {"a": 1}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", r"x: its dict cannot be unpickled: it was cut short or damaged: .* \(0 bytes\)"),
        (pickle.dumps({"a": [1] * 100})[:-5], "cut short or damaged"),
        (b"\x80\x05no pickle", "cut short or damaged|cannot be unpickled"),
        (pickle.dumps(Harmful()), "ZeroDivisionError: of the user's class"),
        (b"cno.such.module\nThing\n.", "ModuleNotFoundError: No module named 'no'"),
    ],
)
def test_what_cannot_be_unpickled_is_named_with_its_cause_and_size(content: bytes, said: str) -> None:
    with pytest.raises(CheckpointError, match=said) as told:
        pickling.read(io.BytesIO(content), "x")

    assert f"({len(content)} bytes)" in str(told.value)


class Leaves:
    def __reduce__(self) -> Any:
        return (exit, (3,))


def test_what_goes_to_another_process_is_bytes_or_nothing() -> None:
    function = lambda: 3  # noqa: E731

    data = pickling.pickled(function)
    assert data is not None and pickle.loads(data)() == 3
    assert pickling.pickled(None) is None
    assert pickling.pickled(threading.Lock()) is None
    assert pickling.pickled(Harmful()) is None, "it does not survive the way"
    assert pickling.pickled(Leaves()) is None
    assert pickling.pickled(ValueError("x"), kind=Exception) is not None
    assert pickling.pickled("x", kind=Exception) is None


def test_what_is_too_long_is_nothing_unless_there_is_no_limit() -> None:
    data = pickling.pickled(b"x" * 100)
    assert data is not None
    assert pickling.pickled(b"x" * 100, limit=len(data)) == data
    assert pickling.pickled(b"x" * 100, limit=len(data) - 1) is None
    assert pickling.pickled(bytes(pickling.PICKLED_LIMIT)) is None
    assert pickling.pickled(bytes(pickling.PICKLED_LIMIT), limit=None) is not None


@pytest.mark.torch
@pytest.mark.torch
def test_a_tensor_of_a_gpu_that_is_not_here_comes_back_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:1")
    pickling.write({"weight": torch.arange(4.0)[1:], "eight": torch.ones(2).to(torch.float8_e4m3fn)}, tmp_path / "x")
    with (tmp_path / "x").open("rb") as file, pytest.raises(RuntimeError, match="CUDA"):
        pickle.load(file)

    with (tmp_path / "x").open("rb") as file:
        found = pickling.read(file, "x")

    assert found["weight"].tolist() == [1.0, 2.0, 3.0] and found["weight"].device.type == "cpu"
    assert found["eight"].float().tolist() == [1.0, 1.0]


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "uint16", "bfloat16", "float32"])
def test_tensors_of_every_kind_are_read_again(tmp_path: Path, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6, dtype=torch.uint8).to(torch.float32).reshape(2, 3).t()
    tensor = tensor.to(getattr(torch, dtype))

    pickling.write({"t": tensor}, tmp_path / "x")

    with (tmp_path / "x").open("rb") as file:
        found = pickling.read(file, "x")["t"]
    assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
    assert torch.equal(found.contiguous().view(torch.uint8), tensor.contiguous().view(torch.uint8))
