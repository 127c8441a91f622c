"""What tests of more than one module use."""

from __future__ import annotations

import os
from pathlib import Path


def visible(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if not name.startswith("."))


class MemoryBlobs:
    """Sink and source; counts what is opened."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.opened = 0

    def put(self, data: bytes) -> str:
        name = f"{len(self.data):064x}"
        self.data[name] = data
        return name

    def get(self, hash: str) -> bytes:
        self.opened += 1
        return self.data[hash]
