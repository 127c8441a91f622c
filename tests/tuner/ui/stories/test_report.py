"""The page in one file, as a person opens it from a disk, or sees it in a notebook: without a server."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.scripts.runs_for_the_page import Mixed, model
from tests.tuner.ui.stories.conftest import drawn, trial_ids
from tests.tuner.ui.stories.test_finished import NASTY, the_row
from tuner.executors import SimulatedExecutor

Opens = Callable[[str], Any]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ "mixed" has all that can go wrong in it, "many" two metrics and more trials than have pages."""
    where = tmp_path_factory.mktemp("runs")
    common: dict[str, Any] = {"storage_path": where, "seed": 1, "verbose": 0, "raise_on_failed_trial": False}
    tune.run(
        Mixed,
        name="mixed",
        config={"rate": 0.5, "kind": tune.grid_search(["good", "fails", "nan", NASTY])},
        stop={"training_iteration": 4},
        checkpoint_freq=1,
        keep_checkpoints_num=1,
        metric="score",
        mode="max",
        executor="inline",
        **common,
    )
    tune.run(
        lambda config: None,
        name="many",
        config={"lr": tune.loguniform(1e-5, 1e-1), "width": tune.choice([64, 128])},
        num_samples=300,
        metric="loss",
        mode="min",
        executor=SimulatedExecutor(lambda config: list(model(config))[:2], slots=8, directories=False),
        **common,
    )
    return where


@pytest.fixture(scope="module")
def reports(runs: Path) -> Path:
    frames = []
    for name in ("mixed", "many"):
        analysis = tune.ExperimentAnalysis(runs / name)
        analysis.report(runs / f"{name}.html")
        frames.append(analysis.ui()._repr_html_())
    (runs / "notebook.html").write_text(f"<!doctype html><title>notebook</title><body>{''.join(frames)}")
    return runs


@pytest.fixture
def opened(browser: Any, reports: Path) -> Iterator[Opens]:
    """Opens one of them, in a browser that reaches no network; nothing may go wrong in it."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, offline=True)
    wrong: list[str] = []

    def opens(name: str) -> Any:
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.goto(f"file://{reports}/{name}")
        return page

    yield opens
    context.close()
    assert wrong == []


def test_a_file_has_every_view_and_says_when_it_was_written(opened: Opens, runs: Path) -> None:
    page = opened("mixed.html")
    ids = trial_ids(runs, "mixed")

    page.get_by_role("region", name="Best so far").get_by_role("link").wait_for()
    page.get_by_text("As it was at").wait_for()
    assert "a part of it is left out" not in page.locator(".banner").inner_text()
    assert f"no more {NASTY}" in page.get_by_role("region", name="Failures", exact=False).first.inner_text()
    page.get_by_role("link", name="trials", exact=True).click()
    assert [row.get_attribute("data-trial") for row in page.locator("tbody tr[data-trial]").all()] == ids
    the_row(page, ids[1]).get_by_role("link").click()
    page.get_by_role("region", name="Error").get_by_text("Traceback", exact=True).wait_for()
    page.get_by_role("region", name="Checkpoints over time").wait_for()
    for view in ("parameters", "lineage", "machines"):
        page.get_by_role("link", name=view, exact=True).click()
        page.locator(f"main.view-{view} :is(canvas, svg, table, .panel)").first.wait_for()
    assert page.get_by_role("link", name="compare").count() == 0
    assert page.locator("img").count() == 0 and "owned" not in page.title()


def test_its_curves_are_drawn_for_each_metric(opened: Opens) -> None:
    page = opened("many.html#e/many/curves")

    assert drawn(page, "loss of") > 2000
    page.get_by_label("metric").select_option("size")
    assert drawn(page, "size of") > 500
    page.get_by_role("link", name="overview").click()
    page.go_back()
    page.get_by_label("metric").wait_for()
    assert page.get_by_label("metric").input_value() == "size"


def test_what_has_no_room_is_said_and_its_row_is_shown(opened: Opens, reports: Path) -> None:
    page = opened("many.html")
    trials = tune.ExperimentAnalysis(reports / "many").trials
    (worst,) = sorted(trials, key=lambda trial: trial.last_result["loss"])[-1:]

    page.get_by_text("a part of it is left out").click()
    page.get_by_text("50 of 300 trials have their curve and their page").wait_for()
    page.get_by_role("link", name="trials", exact=True).click()
    page.get_by_label("Filter").fill(worst.trial_id)
    the_row(page, worst.trial_id).get_by_role("link").click()
    page.get_by_text("This report has no more of it").wait_for()
    assert str(worst.evaluated_params["width"]) in page.get_by_role("region", name="Config").inner_text()


def test_a_notebook_shows_several_in_frames_that_touch_nothing_of_it(opened: Opens, reports: Path) -> None:
    page = opened("notebook.html")

    for number, name in enumerate(("mixed", "many")):
        frame = page.frame_locator("iframe").nth(number)
        frame.get_by_role("heading", name=name).wait_for()
        frame.get_by_role("link", name="trials", exact=True).click()
        frame.locator("tr[data-trial]").first.wait_for()
        frame.get_by_role("button", name="Colours: auto, change to light").click()
        frame.get_by_role("button", name="Colours: light, change to dark").wait_for()
    assert page.title() == "notebook" and page.url.endswith("notebook.html")
    assert page.evaluate(
        "Array.from(frames, (one) => { try { return one.document.title } catch { return 'closed' } })"
    ) == [
        "closed",
        "closed",
    ]
    assert html.unescape((reports / "notebook.html").read_text()).count('sandbox="allow-scripts"') == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_at_400_pixels_nothing_is_cut_off_and_text_has_contrast(opened: Opens, scheme: str) -> None:
    page = opened("mixed.html")
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 400, "height": 800})

    page.get_by_role("region", name="Failures", exact=False).first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    assert page.evaluate(Path(__file__).with_name("contrast.js").read_text()) == []
