from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tuner.experiment.harness import Driver, Writers
from tuner.experiment import journal_segment
from tuner.experiment.paths import ExperimentPaths


@pytest.fixture
def paths(tmp_path: Path) -> ExperimentPaths:
    return ExperimentPaths(tmp_path / "exp")


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_segment, "SEGMENT_BYTES", 2000)


@pytest.fixture
def writers(paths: ExperimentPaths) -> Iterator[Writers]:
    made = Writers(paths)
    yield made
    for writer in made.made:
        writer._pending.clear()
        writer.close()


@pytest.fixture
def driver() -> Iterator[Callable[[], Driver]]:
    drivers: list[Driver] = []

    def make() -> Driver:
        drivers.append(Driver())
        return drivers[-1]

    yield make
    for made in drivers:
        made.close()
