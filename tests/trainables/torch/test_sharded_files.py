"""Files of sharded states are read straight into the tensors that they are for."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.checkpoint.filesystem import FileSystemReader

from trainables.errors import CheckpointError
from trainables.torch import load_sharded, save_sharded
from trainables.torch.sharded_files import _Part

pytestmark = [pytest.mark.torch, pytest.mark.timeout(400)]


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(12.0).reshape(3, 4).t(),
        torch.arange(12)[::3],
        torch.full((3,), 1.5, dtype=torch.bfloat16),
        torch.tensor([True, False]),
        torch.tensor(2.5, dtype=torch.float64),
        torch.empty(0, 3),
        torch.tensor([1 + 2j]),
    ],
    ids=lambda value: f"{value.dtype}-{tuple(value.shape)}-{value.stride()}",
)
def test_tensors_of_every_layout_come_back_as_they_were(tmp_path: Path, value: torch.Tensor) -> None:
    """Two of them, since the second is read by what was seen of the first."""
    save_sharded({"a": value, "b": value + value}, tmp_path)
    for like in (torch.zeros(value.shape, dtype=value.dtype), torch.zeros_like(value)):
        load_sharded(state := {"a": like, "b": like.clone()}, tmp_path)
        assert torch.equal(state["a"], value) and torch.equal(state["b"], value + value)


def test_a_tensor_may_be_loaded_as_another_kind_and_a_file_that_is_cut_short_is_an_error(tmp_path: Path) -> None:
    save_sharded({"a": torch.arange(5000.0), "b": torch.arange(5000.0)}, tmp_path)
    load_sharded(state := {"a": torch.zeros(5000, dtype=torch.float64)}, tmp_path)
    assert torch.equal(state["a"], torch.arange(5000.0).double())
    (file,) = tmp_path.glob("*.distcp")
    os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(CheckpointError):
        load_sharded({"a": torch.zeros(5000), "b": torch.zeros(5000)}, tmp_path)


def test_what_is_wanted_whole_is_read_into_its_own_memory_and_all_else_goes_torchs_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {"whole": torch.arange(4000.0), "part": torch.arange(6.0).reshape(2, 3), "n": 3}
    save_sharded(state, tmp_path)
    left: list[list[str]] = []
    real = FileSystemReader.read_data

    def noted(self: Any, plan: Any, planner: Any) -> Any:
        left.append(sorted(item.storage_index.fqn for item in plan.items))
        return real(self, plan, planner)

    monkeypatch.setattr(FileSystemReader, "read_data", noted)
    like = {"whole": torch.zeros(4000), "part": torch.zeros(3, 2).t(), "n": 0}
    memory = like["whole"].data_ptr()  # type: ignore[attr-defined]

    load_sharded(like, tmp_path)

    assert left == [["n", "part"]]
    assert like["whole"].data_ptr() == memory  # type: ignore[attr-defined]
    assert torch.equal(like["whole"], state["whole"]) and torch.equal(like["part"], state["part"])  # type: ignore[arg-type]
    assert like["n"] == 3


@given(
    st.binary(min_size=1, max_size=60),
    st.integers(0, 20),
    st.lists(
        st.one_of(
            st.tuples(st.just("read"), st.integers(-1, 30)),
            st.tuples(st.just("start"), st.integers(0, 40)),
            st.tuples(st.just("end"), st.integers(0, 5)),
            st.tuples(st.just("readinto"), st.integers(0, 30)),
        ),
        max_size=10,
    ),
)
def test_a_part_of_a_file_is_a_file(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, before: int, calls: list[tuple[str, int]]
) -> None:
    path = tmp_path_factory.mktemp("parts") / "x"
    path.write_bytes(b"b" * before + content + b"after")
    like = io.BytesIO(content)

    with path.open("rb", buffering=0) as file:
        part = _Part(file, before, len(content))
        assert part.readable() and part.seekable()
        for call, value in calls:
            if call == "start":
                at = min(value, len(content))
                assert part.seek(at) == like.seek(at)
            elif call == "end":
                at = -min(value, len(content))
                assert part.seek(at, os.SEEK_END) == like.seek(at, os.SEEK_END)
            elif call == "readinto":
                mine, theirs = bytearray(value), bytearray(value)
                assert part.readinto(mine) == like.readinto(theirs)
                assert mine == theirs
            else:
                assert part.read(value) == like.read(value)
            assert part.tell() == like.tell()
