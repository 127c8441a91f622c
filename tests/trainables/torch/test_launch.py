"""The torch framework of a group, without its launcher: what is decided of ranks, names and errors."""

from __future__ import annotations

import pytest

from trainables.torch import (
    TorchConfig,
)
from trainables.torch.launch import TorchBackend

pytestmark = pytest.mark.torch


def test_ranks_with_a_gpu_each_talk_over_nccl_and_those_that_share_one_cannot() -> None:
    names = [TorchBackend(TorchConfig(), gpus).name for gpus in (2, 1, 0.5, 0)]

    assert names == ["nccl", "nccl", "gloo", "gloo"]
    assert TorchBackend(TorchConfig(backend="nccl"), 0.5).name == "nccl"
