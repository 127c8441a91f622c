from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.gpu.harness import BACKEND


@pytest.fixture(autouse=True)
def _sees_a_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process group over nccl whose only rank is this process."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(BACKEND, init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()
