"""Hook of pytest that keeps the name of the running test in a file, for the time limit of .ci/run."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Write the name to a file of the directory RUNNING_TESTS, one file for each process of pytest."""
    directory = os.environ.get("RUNNING_TESTS")
    if directory is None:
        return (yield)
    file = Path(directory, str(os.getpid()))
    file.write_text(item.nodeid)
    try:
        return (yield)
    finally:
        file.unlink(missing_ok=True)
