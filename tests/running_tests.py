"""Hooks of pytest that name a failed test at once, and tell .ci/steps.py which tests run and how pytest ended.

What they tell is in files of the directory RUNNING_TESTS, where that variable is set. No test begins after LAST_BEGIN,
in seconds of the monotonic clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from pathlib import Path

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Write the name to a file, one for each process of pytest."""
    directory = os.environ.get("RUNNING_TESTS")
    if directory is None:
        return (yield)
    file = Path(directory, f"running-{os.getpid()}")
    file.write_text(item.nodeid)
    try:
        return (yield)
    finally:
        file.unlink(missing_ok=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    if time.monotonic() > float(os.environ.get("LAST_BEGIN", "inf")):
        pytest.skip("NOT RUN: time")


class RunTeller:
    """Plug-in of pytest that prints the name of a test when it fails, and not only at the end of the run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and reporter is not None:
            reporter.write_line(f"\nFAILED {report.nodeid} ({report.when})")

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the exit status, which make does not hand on."""
        if directory := os.environ.get("RUNNING_TESTS"):
            Path(directory, "exit-status").write_text(str(int(exitstatus)))


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # a worker of xdist prints nothing
        config.pluginmanager.register(RunTeller(config))
