"""What tests of several samplers, and of several savers, use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from torch.utils.data import DistributedSampler

from trainables.torch import AtomicDirectory

lengths = st.integers(0, 40)
ranks = st.integers(1, 7)
epochs = st.integers(0, 5)


def torchs(length: int, size: int, rank: int, epoch: int, **more: Any) -> list[int]:
    """What torch's own sampler gives a rank."""
    sampler = DistributedSampler(range(length), size, rank, **more)  # type: ignore[arg-type]
    sampler.set_epoch(epoch)
    return list(sampler)


def save(saver: AtomicDirectory, content: str = "x", *, forced: bool = False) -> str:
    directory = saver.prepare_checkpoint_directory(force_save=forced)
    Path(directory, "checkpoint.pt").write_text(content)
    saver.symlink_latest(directory)
    return directory


def checkpoints(output: Path) -> list[str]:
    return sorted(entry for entry in os.listdir(output) if "_checkpoint_" in entry and "latest" not in entry)
