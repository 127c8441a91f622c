"""A stand-in run for each logger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tuner.lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Any:
    return lambda *callbacks: Lab(tmp_path / "experiment", *callbacks)
