"""A filesystem that can reflink: XFS in a file, mounted through a loop device."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def xfs(directory: Path) -> Iterator[Path]:
    """Its root, of 400 MB, as long as the context lasts."""
    if os.geteuid() != 0 or shutil.which("mkfs.xfs") is None:
        pytest.skip("a filesystem that can reflink needs root, and mkfs.xfs: apt-get install xfsprogs")
    image, place = directory / "image", directory / "xfs"
    with open(image, "wb") as file:
        file.truncate(400 << 20)
    place.mkdir()
    subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, place], check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting a loop device is not allowed here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
