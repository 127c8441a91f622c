"""The report: one page with everything in it, safe whatever configs hold, and drawn by a browser without a network."""

from __future__ import annotations

import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.tuner.analysis.harness import NASTY, exploit, needs_chromium, tuned
from tests.tuner.lab import Lab
from tuner.analysis import ResultGrid
from tuner.logger import JsonLoggerCallback


class Page(HTMLParser):
    """What a browser would fetch, the text of the cells, and how many plots there are."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.cells: list[str] = []
        self.plots = 0
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.fetched += [f"{tag} {name}={value}" for name, value in attrs if name in ("src", "href")]
        self.plots += "plotly-graph-div" in (given.get("class") or "")
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside in ("td", "th", "li"):
            self.cells.append(data)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    made = tuned(Lab(tmp_path / "experiment", JsonLoggerCallback()))
    exploit(made, 0, 2, 2, lr=0.3)
    return made


def test_the_report_is_one_page_that_fetches_nothing(lab: Lab) -> None:
    where = ResultGrid(lab.analysis(["loss", "size"], ["min", "max"], scheduler="PBT()")).report()

    assert where == str(lab.state.root / "report.html")
    page = Page(Path(where).read_text())
    assert page.fetched == []
    assert page.plots == 2 * 5 + 3  # five kinds for each metric; pareto, timeline, schedule
    assert {"loss (min), size (max)", "PBT()", "5 TERMINATED, 1 ERROR"} <= set(page.cells)
    assert [cell for cell in page.cells if cell in {trial.trial_id for trial in lab.state.trials}] == [
        lab.state.trials[number].trial_id for number in range(6)
    ]
    assert NASTY in page.cells  # as text
    assert NASTY not in Path(where).read_text()


def test_what_is_left_out_is_said(lab: Lab, tmp_path: Path) -> None:
    where = lab.analysis().report(tmp_path / "elsewhere" / "one.html")

    page = Page(Path(where).read_text())
    assert where == str(tmp_path / "elsewhere" / "one.html")
    assert "pareto: it takes two or three metrics; there are 1" in page.cells


def test_an_experiment_without_trials_has_a_report_too(tmp_path: Path) -> None:
    empty = Lab(tmp_path / "experiment")
    empty.state.root.mkdir()

    page = Page(Path(empty.analysis().report()).read_text())

    assert page.plots == 0
    assert "timeline: there are no trials yet" in page.cells


@needs_chromium
def test_a_browser_draws_every_plot_and_runs_nothing_of_a_config(lab: Lab, tmp_path: Path) -> None:
    where = lab.analysis(["loss", "size"], ["min", "max"]).report()
    browser = shutil.which("chromium")
    assert browser is not None

    done = subprocess.run(
        [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--proxy-server=127.0.0.1:9"]
        + [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=20000", "--dump-dom", f"file://{where}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )

    drawn = done.stdout.partition("<body>")[2]
    assert "<title>experiment</title>" in done.stdout
    assert drawn.count('class="plot-container plotly"') == 13
    assert "Download plot" in drawn and "Share chart" not in drawn
