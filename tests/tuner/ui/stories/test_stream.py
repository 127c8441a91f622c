"""What a page does with very many results, while it is open, and while its server was away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.ui.stories.conftest import Served, Visit, serving
from tuner.executors import SimulatedExecutor

WATCHED = """() => {
  window.longest = 0;
  new PerformanceObserver((list) => {
    for (const task of list.getEntries()) window.longest = Math.max(window.longest, task.duration);
  }).observe({ type: 'longtask' });
}"""


def trials_in(where: Path, number: int) -> None:
    """Ten results of each trial that is not there yet."""
    tune.run(
        lambda config: None,
        name="stream",
        storage_path=where,
        config={"x": tune.uniform(0, 1)},
        num_samples=number,
        metric="loss",
        mode="min",
        seed=1,
        resume=(where / "stream").is_dir(),
        executor=SimulatedExecutor(
            lambda config: [(1.0, {"loss": config["x"] / step}) for step in range(1, 11)], slots=8, directories=False
        ),
        verbose=0,
    )


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("stream")
    trials_in(where, 10)
    return where


@pytest.fixture(scope="module")
def served(where: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(where, home=tmp_path_factory.mktemp("home")) as it:
        yield it


def held_mb(page: Any) -> float:
    """What JavaScript holds after a collection."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    heap = session.send("Runtime.getHeapUsage")
    session.detach()
    return float(heap["usedSize"] + heap.get("backingStorageSize", 0)) / 1e6


def rows(page: Any, number: int) -> None:
    """Wait until the table has so many trials."""
    page.locator(f'table[aria-rowcount="{number + 1}"]').wait_for()


def test_a_page_that_knows_less_than_is_kept_reads_all_again(visit: Visit, where: Path) -> None:
    page = visit.to("e/stream/trials")
    rows(page, 10)
    read: list[str] = []
    page.on("request", lambda asked: read.append(asked.url) if "trials.json" in asked.url else None)
    visit.served.kill()
    page.get_by_text("The connection is lost").wait_for()

    trials_in(where, 310)
    visit.served.start("--port", str(visit.served.port))

    rows(page, 310)
    assert len(read) == 1
    visit.wrong.clear()  # the browser has said that it could not connect


def test_ten_thousand_results_come_into_an_open_page_that_answers_and_does_not_grow(visit: Visit, where: Path) -> None:
    trials_in(where, 310)  # as the test before leaves it
    page = visit.to("e/stream/trials")
    rows(page, 310)
    page.evaluate(WATCHED)
    before = held_mb(page)

    trials_in(where, 1310)

    rows(page, 1310)
    assert page.evaluate("window.longest") < 500
    page.get_by_label("Filter").fill("index >= 1300")
    rows(page, 10)
    page.locator("tr[data-trial] td:nth-child(4)").get_by_text("10", exact=True).nth(9).wait_for()
    assert held_mb(page) - before < 2
