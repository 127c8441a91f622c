"""A run without a loop, whose results are in files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.lab import Lab
from tuner.logger import JsonLoggerCallback


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Any]:
    lab = Lab(tmp_path / "experiment", JsonLoggerCallback())
    yield lab
    lab.callbacks.on_experiment_end(lab.state.trials)  # files of trials that have not ended are open until then
