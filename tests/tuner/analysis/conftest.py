"""A run without a loop, whose results are in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tuner.lab import Lab
from tuner.logger import JsonLoggerCallback


@pytest.fixture
def lab(tmp_path: Path) -> Any:
    return Lab(tmp_path / "experiment", JsonLoggerCallback())
