"""A page of all plots: safe whatever configs hold, and drawn by a browser without a network."""

from __future__ import annotations

import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.analysis.harness import NASTY, exploit, needs_chromium, tuned
from tests.tuner.lab import Lab
from tuner.analysis.plot_files import page
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
        self.plots += given.get("class") == "plot"
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside == "li":
            self.cells.append(data)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    made = tuned(Lab(tmp_path / "experiment", JsonLoggerCallback()))
    exploit(made, 0, 2, 2, lr=0.3)
    return made


def test_all_plots_are_one_page_that_fetches_nothing(lab: Lab, tmp_path: Path) -> None:
    where = tmp_path / "elsewhere" / "all.html"
    made = lab.analysis(["loss", "size"], ["min", "max"]).plot(path=where)

    shown = Page(where.read_text())
    assert shown.fetched == []
    assert shown.plots == len(made) == 2 * 8 + 3  # eight kinds for each metric; pareto, timeline, schedule
    assert NASTY not in where.read_text()


def test_what_is_left_out_is_said(lab: Lab, tmp_path: Path) -> None:
    lab.analysis().plot(path=tmp_path / "one.html")

    assert "pareto: it takes two or three metrics; there are 1" in Page((tmp_path / "one.html").read_text()).cells


def test_an_experiment_without_trials_has_a_page_too(tmp_path: Path) -> None:
    Lab(tmp_path / "experiment").analysis().plot(path=tmp_path / "one.html")

    shown = Page((tmp_path / "one.html").read_text())
    assert shown.plots == 0
    assert "timeline: there are no trials yet" in shown.cells


def opened(where: str, profile: Path, *more: str) -> str:
    """The page as a browser has made it of the file."""
    browser = shutil.which("chromium")
    assert browser is not None
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--proxy-server=127.0.0.1:9", "--hide-scrollbars"]
    done = subprocess.run(
        [browser, *flags, f"--user-data-dir={profile}", "--virtual-time-budget=20000", *more, f"file://{where}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    return done.stdout.partition("</head>")[0] + done.stdout.partition("<body>")[2]


DRAWN = 'class="plot-container plotly"'


@needs_chromium
def test_a_browser_draws_every_plot_and_runs_nothing_of_a_config(lab: Lab, tmp_path: Path) -> None:
    where = str(tmp_path / "experiment.html")
    lab.analysis(["loss", "size"], ["min", "max"]).plot(path=where)

    drawn = opened(where, tmp_path / "profile", "--window-size=1400,12000", "--dump-dom")

    assert "<title>experiment</title>" in drawn
    assert drawn.count(DRAWN) == 19
    assert 'data-title="Download plot' in drawn and 'data-title="Share chart' not in drawn


@needs_chromium
def test_the_page_of_300_trials_is_small_and_draws_at_once_what_is_in_sight(
    many: tune.ExperimentAnalysis, tmp_path: Path
) -> None:
    where = str(tmp_path / "many.html")
    made = many.plot(path=where)

    assert Path(where).stat().st_size < 6e6
    assert len(made._repr_html_()) < 3e6, "a notebook's server drops more: its iopub_data_rate_limit, over 3 s"
    drawn = opened(where, tmp_path / "profile", "--window-size=1400,2400", "--dump-dom")
    assert drawn.count('<script type="application/json">') >= 4  # text until somebody scrolls there
    assert 1 <= drawn.count(DRAWN) <= 5


@needs_chromium
def test_the_best_is_dark_in_both_modes(tmp_path: Path) -> None:
    """By pixels: a higher x has a higher loss, so that with "max" the right side is dark, with "min" the left one."""
    image = pytest.importorskip("PIL.Image")
    lab = Lab(tmp_path / "experiment", JsonLoggerCallback())
    for number in range(64):
        trial = lab.trial(x=float(number % 8), y=float(number // 8))
        lab.report(trial, loss=float(number % 8))
        lab.end(trial)
    kinds = [("contour", "max"), ("contour", "min"), ("rank", "max"), ("rank", "min")]
    made = {f"{kind} {mode}": lab.analysis("loss", mode).plot(kind) for kind, mode in kinds}
    (tmp_path / "page.html").write_text(page("colours", made, {}))

    shot = tmp_path / "shot.png"
    opened(f"{tmp_path}/page.html", tmp_path / "profile", "--window-size=1400,2400", f"--screenshot={shot}")

    sides = [darker_side(block) for block in blue_blocks(image.open(shot).convert("RGB"))]
    assert sides == ["right" if mode == "max" else "left" for _, mode in kinds]


def blue_blocks(shot: Any) -> list[Any]:
    """The parts of a picture, from above, that have something blue in them, without the colour bars on the right."""
    import numpy as np

    pixels = np.asarray(shot, dtype=int)[:, 100:1150]
    blue = pixels[..., 2] - pixels[..., 0] > 30
    rows = np.flatnonzero(blue.sum(axis=1) > 20)
    parts = np.split(rows, np.flatnonzero(np.diff(rows) > 60) + 1)
    return [pixels[part[0] : part[-1] + 1] for part in parts if len(part) > 20]


def darker_side(block: Any) -> str:
    """Where what is blue is darker."""
    import numpy as np

    blue = block[..., 2] - block[..., 0] > 30
    places = np.flatnonzero(blue.any(axis=0))
    third = (places[-1] - places[0]) // 3
    left, right = (
        block[:, side][blue[:, side]].mean()
        for side in (slice(places[0], places[0] + third), slice(places[-1] - third, places[-1] + 1))
    )
    assert abs(left - right) > 30
    return "left" if left < right else "right"
