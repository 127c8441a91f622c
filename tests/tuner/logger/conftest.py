"""A stand-in run for each logger."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Any:
    return lambda *callbacks: Lab(tmp_path / "experiment", *callbacks)
