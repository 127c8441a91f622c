"""File systems of fsspec, of which little can be taken for granted."""

from __future__ import annotations

from pathlib import Path

from tests.trainables.transfer.harness import checks, run
from trainables.testing.backends import Check
from trainables.transfer.backend import Can
from trainables.transfer.fsspec import FsspecBackend, MemoryBackend


@checks
def test_memory_conforms(check: Check) -> None:
    run(check, MemoryBackend(f"memory://conform/{check.__name__}"))


@checks
def test_what_fsspec_knows_conforms(check: Check, tmp_path: Path) -> None:
    backend = FsspecBackend(f"local://{tmp_path}/place")
    assert backend.can == Can(verify=False, exclusive=False)
    run(check, backend)
