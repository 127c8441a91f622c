from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

SHM = Path("/dev/shm")


@pytest.fixture(scope="session", autouse=True)
def no_tensorboard() -> Iterator[None]:
    """Its files are written by a library that knows nothing of ours, and nothing is ever read back from them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNE_DISABLE_TENSORBOARD", "1")
        yield


@pytest.fixture
def disks() -> Iterator[Path]:
    """A short directory in memory: rebuilt disks come and go there by the thousand."""
    directory = tempfile.mkdtemp(prefix="crash", dir=SHM if SHM.is_dir() else None)
    with pytest.MonkeyPatch.context() as patch:
        # Every start looks through it for what dead drivers left: among the files of all others that takes a sixth.
        patch.setattr(tempfile, "tempdir", tempfile.mkdtemp(prefix="tmp", dir=directory))
        yield Path(directory)
    shutil.rmtree(directory, ignore_errors=True)
