from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

SHM = Path("/dev/shm")


@pytest.fixture
def quick_disk() -> Iterator[Path]:
    """A short directory in memory, for what syncs often."""
    directory = tempfile.mkdtemp(prefix="torch", dir=SHM if SHM.is_dir() else None)
    yield Path(directory)
    shutil.rmtree(directory, ignore_errors=True)
