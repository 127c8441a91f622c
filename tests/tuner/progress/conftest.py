"""Runs without a loop, and logging that nobody has configured."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Any:
    return lambda *callbacks: Lab(tmp_path / "experiment", *callbacks)


@pytest.fixture
def unconfigure(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Logging as a script has it that never heard of it; pytest puts its own handlers on the root for each call."""
    return lambda: monkeypatch.setattr(logging.getLogger(), "handlers", [])
