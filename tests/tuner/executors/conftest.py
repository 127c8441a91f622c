from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from driving import Driver, StandInExecutor, Watched


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Any]:
    """`local(trainable, cpus=2, ...)` starts a local executor and gives a Driver for it."""
    started: list[Driver] = []

    def start(trainable: Any, *, kind: type = StandInExecutor, marker: str = "", **settings: Any) -> Driver:
        executor = kind(**{"cpus": 2, **settings})
        executor.start(trainable, marker=marker or f"test-{id(executor)}", temporary=tmp_path / "temporary")
        started.append(Driver(executor, tmp_path))
        return started[-1]

    yield start
    for driver in started:
        driver.executor.shutdown()


@pytest.fixture
def watch() -> Iterator[Any]:
    """`watch(pid)` remembers a live process."""
    watched: list[Watched] = []

    def start(pid: int) -> Watched:
        watched.append(Watched(pid))
        return watched[-1]

    yield start
    for each in watched:
        each.close()
