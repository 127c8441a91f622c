"""Laying a stored sample down."""

from __future__ import annotations

import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
INDEX: list[dict[str, Any]] = [
    entry for index in sorted(HERE.glob("*/index.json")) for entry in json.loads(index.read_text())
]


def unpack(version: str, name: str, place: Path) -> None:
    """Lay a sample down in an existing directory: `storage/<name>`, and `replica/<name>` where it has a copy."""
    with lzma.open(HERE / version / f"{name}.tar.xz") as packed, tarfile.open(fileobj=packed) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # Python before 3.11.4 has none
        tar.extractall(place)
