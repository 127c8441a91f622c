"""`make soak SLICE=3/20`: a part of the tests, what of it has not passed yet, a line for each in a file that is kept.

A pytest plugin, named by the Makefile alone: `-p tests.soak.slices --soak-results FILE [--soak-slice 3/20]`.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tuner
from tests.soak.counts import taken

PACKAGES = ("trainables", "tuner", "hydra_plugins")
SHOWN = 2000
"""Characters of what a failure says, its end."""


def slice_of(test: str, slices: int) -> int:
    """Which of the slices 1 to `slices` has it: the same one however many other tests there are."""
    return zlib.crc32(test.encode()) % slices + 1


def chosen(text: str) -> tuple[int, int]:
    """(3, 20) for "3/20"."""
    number, _, slices = text.partition("/")
    if not (number.isascii() and number.isdigit() and slices.isascii() and slices.isdigit()):
        raise pytest.UsageError(f"SLICE={text!r} is not like 3/20, the third of 20 slices")
    if not 1 <= int(number) <= int(slices):
        raise pytest.UsageError(f"SLICE={text!r}: the slices of {slices} have the numbers 1 to {slices}")
    return int(number), int(slices)


def lines(results: Path) -> Iterator[dict[str, Any]]:
    """What the file holds; a line that a kill cut off is none."""
    for line in results.read_bytes().splitlines() if results.exists() else ():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def passed(results: Path, version: str) -> set[str]:
    """The tests that need not run again: they have passed with this version of the package."""
    of_version = {line["run"]: line["version"] == version for line in lines(results) if "version" in line}
    return {line["test"] for line in lines(results) if line.get("outcome") == "passed" and of_version.get(line["run"])}


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    kind = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {kind}"


def _commit(root: Path) -> str:
    """The short hash, with a + when the packages are not as they were committed; "" outside of a checkout."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", root, *words], check=True, capture_output=True, text=True).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "--", *PACKAGES) else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


class Results:
    """Appends a line for each test as it ends, so that nothing is lost when the slice is cut off."""

    def __init__(self, path: Path, root: Path, part: str) -> None:
        self._path = path
        self._run = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}"
        machine, version = _machine(), tuner.__version__
        head = {"run": self._run, "version": version, "commit": _commit(root), "machine": machine, "slice": part}
        self._head: dict[str, Any] | None = head
        self._parts: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        line = self._parts.setdefault(report.nodeid, {"run": self._run, "test": report.nodeid, "outcome": "passed"})
        line["seconds"] = round(line.get("seconds", 0) + report.duration, 1)
        if report.outcome != "passed":
            line["outcome"] = report.outcome
            line["said"] = str(report.longrepr)[-SHOWN:]
        if report.when == "teardown":
            line["counts"] = dict(report.user_properties)
            self._append(self._parts.pop(report.nodeid))

    def _append(self, line: dict[str, Any]) -> None:
        head, self._head = self._head, None
        self._path.parent.mkdir(parents=True, exist_ok=True)
        torn = self._path.exists() and not self._path.read_bytes().endswith(b"\n") and self._path.stat().st_size
        text = "".join(json.dumps(each) + "\n" for each in (head, line) if each is not None)
        with self._path.open("ab") as file:
            file.write((b"\n" if torn else b"") + text.encode())  # one write: two slices may run at once


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("soak")
    group.addoption("--soak-results", type=Path, help="the file that has a line for each test that ended")
    group.addoption("--soak-slice", default="1/1", help="3/20: the third of 20 slices")


def pytest_configure(config: pytest.Config) -> None:
    chosen(config.getoption("--soak-slice"))
    results = config.getoption("--soak-results")
    if results is not None and not hasattr(config, "workerinput"):  # workers of xdist tell the one that started them
        config.pluginmanager.register(Results(results, config.rootpath, config.getoption("--soak-slice")))


@pytest.hookimpl(trylast=True)  # after -m and -k
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    number, slices = chosen(config.getoption("--soak-slice"))
    results = config.getoption("--soak-results")
    done = _done_before(config, results)
    kept = [item for item in items if slice_of(item.nodeid, slices) == number and item.nodeid not in done]
    if dropped := [item for item in items if item not in set(kept)]:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


def _done_before(config: pytest.Config, results: Path | None) -> set[str]:
    """As it was when the run began: all workers of xdist have to collect the same."""
    if results is None:
        return set()
    return passed(results, tuner.__version__)


@pytest.hookimpl(trylast=True)
def pytest_runtest_setup() -> None:
    taken()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if call.when == "teardown":
        report.user_properties = [*item.user_properties, *taken().items()]
    return report
