"""A real browser, a real server, and experiments that were really run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tuner as tune

ROOT = Path(__file__).resolve().parents[4]
STATIC = ROOT / "tuner" / "ui" / "static"
BROWSER = shutil.which("chromium")


class Served:
    """`tuner ui` in a process of its own: where it listens, with the token and without."""

    def __init__(self, *places: Path | str, home: Path, more: tuple[str, ...] = ()) -> None:
        self.places, self.home = places, home
        self.start(*more)

    def start(self, *more: str) -> None:
        command = [sys.executable, "-m", "tuner.cli", "ui", *map(str, self.places), *more]
        environment = {**os.environ, "HOME": str(self.home), "XDG_STATE_HOME": str(self.home)}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=self.home, env=environment)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        self.root = self.address.partition("?")[0]
        self.port = int(self.root.rstrip("/").rpartition(":")[2])

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def close(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=30)


@contextmanager
def serving(*places: Path | str, home: Path, more: tuple[str, ...] = ()) -> Iterator[Served]:
    served = Served(*places, home=home, more=more)
    try:
        yield served
    finally:
        served.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """For one file of stories: while Playwright is there, every test of its thread is told that an event loop runs."""
    if BROWSER is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    if not STATIC.is_dir():
        pytest.skip("the page is not there: make web")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished experiments: "mixed" has all that can go wrong in it, "asha" decisions, "pbt" a lineage.

    "space" has parameters of each scale.
    """
    where = tmp_path_factory.mktemp("results")
    script = ROOT / "tests" / "scripts" / "runs_for_the_page.py"
    subprocess.run([sys.executable, script, where], check=True, cwd=where, capture_output=True, text=True, timeout=100)
    return where


@pytest.fixture(scope="module")
def served(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(results, home=tmp_path_factory.mktemp("home")) as it:
        yield it


class Visit:
    """A page of the browser, and what went wrong in it."""

    def __init__(self, page: Any, served: Served) -> None:
        self.page, self.served = page, served
        self.wrong: list[str] = []
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)

    def to(self, address: str) -> Any:
        self.page.goto(self.served.root + address)
        return self.page


@pytest.fixture(scope="module")
def context(browser: Any, served: Served) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(served.address)
    page.close()
    yield context
    context.close()


@pytest.fixture
def visit(context: Any, served: Served) -> Iterator[Visit]:
    page = context.new_page()
    made = Visit(page, served)
    yield made
    page.close()
    assert made.wrong == []


def trial_ids(results: Path, name: str) -> list[str]:
    return [trial.trial_id for trial in tune.ExperimentAnalysis(results / name).trials]


def drawn(page: Any, label: str) -> int:
    """How many pixels of a canvas have a colour, once it has some, and as many in the next picture."""
    canvas = page.get_by_role("img", name=label).first
    canvas.wait_for()
    return int(canvas.evaluate(COLOURED))


COLOURED = """async (canvas) => {
  const coloured = () => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let sum = 0;
    for (let n = 3; n < data.length; n += 4) sum += data[n] > 40;
    return sum;
  };
  let [before, now] = [-1, 0];
  while (!now || now !== before) {
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    [before, now] = [now, coloured()];
  }
  return now;
}"""
