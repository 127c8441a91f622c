"""The tier of each test: a marker that the Makefile selects by.

- `in_process`: tests that start no process, program or server, and connect to none.
- `kind`: tests that do, and that `make test` runs. They are listed in kinds.txt and in real.txt.
- `wide`: tests that do, and that only `make test-wide` runs. They are listed in real.txt.

A line of the lists names a test, a test function, a file, or a folder (with a slash at its end). A test that is not
listed fails if its main thread starts something.
"""

from __future__ import annotations

import platform
import sys
import threading
from collections.abc import Generator
from itertools import islice
from pathlib import Path, PurePosixPath

import pytest


def listed(name: str) -> frozenset[str]:
    lines = Path(__file__).with_name(name).read_text().splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


REAL = listed("real.txt")
KINDS = listed("kinds.txt")
LONG_S = 300
"""Tests with a longer time limit, in seconds, begin first."""
STARTS = {"subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.posix_spawn", "socket.connect"}
"""The audit events of Python that fail a test in process."""


def names_of(test: str) -> set[str]:
    """Return the names that select the test with this id: the id, its function, its file and its folders."""
    function = test.partition("[")[0]
    file = function.partition("::")[0]
    return {test, function, file, *(f"{folder}/" for folder in PurePosixPath(file).parents)}


def tier(test: str) -> str:
    """Return the marker of a test with this id."""
    if not KINDS.isdisjoint(names_of(test)):
        return "kind"
    return "in_process" if REAL.isdisjoint(names_of(test)) else "wide"


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, None, None]:
    for item in items:
        if not any(mark.name in ("soak", "gpu", "peers") for mark in item.iter_markers()):
            item.add_marker(tier(item.nodeid))
    yield  # and tests are chosen by their markers
    items[:] = slow_ones_first(items, getattr(config, "workerinput", {}).get("workercount", 1))


def slow_ones_first(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return the tests so that slow modules begin first, and no worker waits for them at the end.

    Each worker gets an equal part of the list, and others take tests from the end of its part.
    """
    slow: dict[Path, list[pytest.Item]] = {item.path: [] for item in items if limit_s(item) > LONG_S}
    for item in items:
        slow.get(item.path, []).append(item)
    parts: list[list[pytest.Item]] = [[] for _ in range(workers)]
    for module in slow.values():
        min(parts, key=len).extend(module)
    rest, ordered = (item for item in items if item.path not in slow), list[pytest.Item]()
    for number, part in enumerate(parts):
        size = (len(items) - len(ordered)) // (workers - number)
        ordered += [*part, *islice(rest, max(0, size - len(part)))]
    return [*ordered, *rest]


def limit_s(item: pytest.Item) -> float:
    """Return the time limit of a test, in seconds; 0: that of all tests."""
    return max((float([*mark.args, *mark.kwargs.values()][0]) for mark in item.iter_markers("timeout")), default=0.0)


seen: list[str] | None = None
"""The audit events of the test in process that runs; None while none runs."""


def hear(event: str, args: tuple[object, ...]) -> None:
    if seen is not None and event in STARTS and threading.current_thread() is threading.main_thread():
        seen.append(f"{event} {args}")


def pytest_configure() -> None:
    platform.processor()  # runs a program, once in a process
    sys.addaudithook(hear)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    global seen
    seen = [] if item.get_closest_marker("in_process") else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    """Fail a test in process whose main thread has started something."""
    global seen
    try:
        yield
    finally:
        started, seen = seen, None
    if started:
        pytest.fail(f"starts something, so it belongs into tests/real.txt: {started[0]}", pytrace=False)
