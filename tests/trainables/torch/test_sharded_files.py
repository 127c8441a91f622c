"""Files of sharded states are read straight into the tensors that they are for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from trainables.errors import CheckpointError
from trainables.torch import load_sharded, save_sharded

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
