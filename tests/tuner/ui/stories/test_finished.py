"""What a person sees and does on the page, in a real browser, of experiments that have ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.ui.stories.conftest import Served, Visit, drawn, trial_ids

NASTY = "<img src=x onerror=\"document.title='owned'\">"


def the_row(page: Any, trial_id: str) -> Any:
    return page.locator(f'tr[data-trial="{trial_id}"]')


def test_the_first_page_lists_the_experiments_with_links_to_them(visit: Visit) -> None:
    page = visit.to("")

    page.get_by_role("link", name="mixed").click()

    page.get_by_role("heading", name="mixed").wait_for()
    assert page.url == visit.served.root + "e/mixed/"


def test_the_list_of_experiments_follows_none_of_them(visit: Visit) -> None:
    page = visit.to("")
    with page.expect_request("**/e/mixed/events?*"):
        page.get_by_role("link", name="mixed").click()

    with page.expect_event("requestfailed", lambda request: "/e/mixed/events?" in request.url):  # the page ends it
        page.get_by_label("All experiments").click()

    with page.expect_request("**/e/mixed/events?*"):
        page.go_back()


def test_the_overview_says_best_counts_failures_and_what_would_be_lost(visit: Visit, results: Path) -> None:
    page = visit.to("e/mixed/")
    best = tune.ExperimentAnalysis(results / "mixed").best_trial
    assert best is not None

    found = page.get_by_role("region", name="Best so far")
    found.get_by_role("link", name=best.trial_id).wait_for()
    assert "score (max)" in found.inner_text() and "checkpoint_000004" in found.inner_text()
    assert "4 of 4 trials ended" in page.get_by_role("region", name="Progress").inner_text()
    assert "If this machine died now" in page.get_by_role("region", name="Safety").inner_text()
    assert f"ValueError: no more {NASTY}" in page.get_by_role("region", name="Failures", exact=False).first.inner_text()


def test_what_trials_are_called_is_text(visit: Visit) -> None:
    page = visit.to("e/mixed/trials")

    page.get_by_role("columnheader", name=NASTY).wait_for()
    assert page.get_by_role("cell", name=NASTY, exact=True).count() == 1
    assert page.locator("img").count() == 0 and "owned" not in page.title()


def test_the_table_has_a_row_for_each_trial_the_best_and_the_broken_ones_too(visit: Visit, results: Path) -> None:
    page = visit.to("e/mixed/trials")
    ids = trial_ids(results, "mixed")
    best = tune.ExperimentAnalysis(results / "mixed").best_trial
    assert best is not None

    the_row(page, ids[0]).wait_for()
    assert [row.get_attribute("data-trial") for row in page.locator("tbody tr[data-trial]").all()] == ids
    assert page.locator("tr[data-best]").get_attribute("data-trial") == best.trial_id
    assert "failed: ValueError: no more" in the_row(page, ids[1]).inner_text()
    assert "–" in the_row(page, ids[2]).inner_text()  # its score is NaN


def test_a_filter_is_in_the_address_and_in_every_view(visit: Visit, results: Path) -> None:
    page = visit.to("e/mixed/trials")
    ids = trial_ids(results, "mixed")
    the_row(page, ids[0]).wait_for()
    page.get_by_label("Filter").fill("state = ERROR")

    the_row(page, ids[0]).wait_for(state="detached")
    assert page.locator("tr[data-trial]").count() == 1 and the_row(page, ids[1]).count() == 1
    assert page.url.endswith("?filter=state+%3D+ERROR")
    page.get_by_role("link", name="overview").click()
    page.wait_for_url("**/e/mixed/?filter=*")
    assert page.get_by_label("Filter").input_value() == "state = ERROR"
    page.locator("#filtered", has_text="1 trial of 4").wait_for()


@pytest.mark.parametrize(
    ("filter", "left"),
    [
        ("score > 1.5", {0, 3}),
        ("kind = nan", {2}),
        ("score = NaN", {2}),
        ("score != nan", {0, 1, 3}),
        ("onerror", {1, 3}),
        ("state = done", {0, 2, 3}),
        ("state = failed", {1}),
        ("state != Done", {1}),
        ("state = terminated", {0, 2, 3}),
        ("score >= 0 kind != good", {1, 3}),
        ("", {0, 1, 2, 3}),
    ],
)
def test_filters_compare_metrics_and_parameters_and_find_words(
    visit: Visit, results: Path, filter: str, left: set[int]
) -> None:
    page = visit.to("e/mixed/trials?filter=" + filter.replace(" ", "+").replace("=", "%3D"))
    ids = trial_ids(results, "mixed")

    page.locator("tr[data-trial]").first.wait_for()
    assert {row.get_attribute("data-trial") for row in page.locator("tr[data-trial]").all()} == {ids[n] for n in left}


def test_a_filter_that_cannot_be_says_why(visit: Visit) -> None:
    page = visit.to("e/mixed/trials?filter=scroe+%3E+1")

    page.get_by_text("no column is named scroe").wait_for()
    assert page.locator("tr[data-trial]").count() == 4


def test_the_table_sorts_by_the_keyboard_and_what_is_no_number_comes_last(visit: Visit, results: Path) -> None:
    page = visit.to("e/mixed/trials")
    ids = trial_ids(results, "mixed")
    header = page.get_by_role("columnheader", name="score", exact=True)

    header.get_by_role("button").press("Enter")
    page.locator('th[aria-sort="ascending"]').wait_for()
    assert [row.get_attribute("data-trial") for row in page.locator("tr[data-trial]").all()] == [
        ids[n] for n in (1, 0, 3, 2)
    ]
    header.get_by_role("button").press("Enter")
    page.locator('th[aria-sort="descending"]').wait_for()
    assert [row.get_attribute("data-trial") for row in page.locator("tr[data-trial]").all()] == [
        ids[n] for n in (0, 3, 1, 2)
    ]
    assert "sort=-last%2Fscore" in page.url


def test_only_rows_in_sight_are_elements_and_the_last_is_reached_by_scrolling(visit: Visit, results: Path) -> None:
    page = visit.to("e/asha/trials")
    page.set_viewport_size({"width": 1280, "height": 400})
    ids = trial_ids(results, "asha")
    the_row(page, ids[0]).wait_for()

    assert page.locator("tr[data-trial]").count() < 60
    assert page.get_by_role("table").get_attribute("aria-rowcount") == "61"
    page.get_by_role("region", name="Trials").press("End")
    the_row(page, ids[-1]).wait_for()


def test_the_back_button_goes_back(visit: Visit) -> None:
    page = visit.to("e/asha/")
    page.get_by_role("link", name="trials", exact=True).click()
    page.locator("tr[data-trial]").first.wait_for()

    page.go_back()

    page.get_by_role("region", name="Best so far").wait_for()


def test_the_metric_of_every_trial_is_drawn(visit: Visit) -> None:
    page = visit.to("e/asha/")

    assert drawn(page, "loss of each trial") > 2000


@pytest.mark.parametrize("view", ["", "trials"])
def test_at_400_pixels_nothing_is_cut_off(visit: Visit, view: str) -> None:
    visit.page.set_viewport_size({"width": 400, "height": 800})
    page = visit.to(f"e/mixed/{view}")

    page.locator("main :is(table, .panel)").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == 400


def test_the_colours_change_and_stay_changed(visit: Visit) -> None:
    page = visit.to("e/mixed/")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")

    page.get_by_role("button", name="Colours: auto, change to light").click()
    page.get_by_role("button", name="Colours: light, change to dark").click()
    page.get_by_role("button", name="Colours: dark, change to auto").wait_for()

    page.reload()
    page.get_by_role("button", name="Colours: dark, change to auto").wait_for()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.evaluate("localStorage.clear()")


def test_without_the_token_nothing_is_told(browser: Any, served: Served) -> None:
    context = browser.new_context()
    page = context.new_page()

    for address in ("", "e/mixed/", "e/mixed/trials.json", "?token=wrong"):
        answer = page.goto(served.root + address)
        assert answer is not None and answer.status == 403
        assert "mixed" not in json.dumps(page.content())
    context.close()
