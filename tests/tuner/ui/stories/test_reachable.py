"""Who has no mouse, does not see the page, or sees it otherwise: every view by keyboard, and by rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tuner.ui.stories.conftest import ROOT, Visit, trial_ids

AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
CONTRAST = Path(__file__).with_name("contrast.js").read_text()
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
BROKEN = """(rules) => axe.run(document, {runOnly: rules, resultTypes: ['violations']}).then((found) => found.violations
  .map((rule) => [rule.id, rule.nodes.length, rule.nodes[0].html.slice(0, 200), rule.nodes[0].failureSummary]))"""
DARK = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}


def views(results: Path) -> list[str]:
    """All of them, filled, empty, of the past, and what is not there."""
    of_asha = ["", "trials", "curves", "machines", "compare?with=pbt", "trials?filter=lr+%3E+1", "?at=300"]
    of_asha += ["parameters", "parameters?plot=importance", "parameters?plot=pareto"]
    pbt, mixed = trial_ids(results, "pbt"), trial_ids(results, "mixed")
    others = [f"e/pbt/lineage?trial={pbt[0]}", f"e/pbt/trial/{pbt[0]}", "e/pbt/trial/nosuch", "e/nosuch/"]
    return ["", *(f"e/asha/{view}" for view in of_asha), *others, "e/mixed/", f"e/mixed/trial/{mixed[1]}"]


def test_every_view_keeps_the_rules_of_wcag_in_light_and_dark(visit: Visit, results: Path) -> None:
    page, broken = visit.page, {}
    script = AXE.read_text()
    for view in views(results):
        page.emulate_media(color_scheme="light")
        visit.to(view)
        page.get_by_text("Reading").first.wait_for(state="detached")
        page.locator("main *").first.wait_for()
        page.evaluate(script)
        found = [*page.evaluate(BROKEN, RULES), *page.evaluate(CONTRAST)]
        page.emulate_media(color_scheme="dark")
        found += [*page.evaluate(BROKEN, DARK), *page.evaluate(CONTRAST)]
        if found:
            broken[view] = found

    assert broken == {}, broken
    visit.wrong.clear()  # the browser says that nosuch is not there


def test_the_forms_of_a_trial_keep_the_rules_too(visit: Visit, results: Path) -> None:
    page = visit.to(f"e/pbt/trial/{trial_ids(results, 'pbt')[0]}")
    page.get_by_role("button", name="Tag checkpoint").first.click()
    page.get_by_label("a name for").wait_for()
    page.get_by_role("button", name="Fork", exact=True).click()
    page.get_by_label("from iteration").wait_for()
    assert focused(page).startswith("select")
    page.evaluate(AXE.read_text())

    assert [*page.evaluate(BROKEN, RULES), *page.evaluate(CONTRAST)] == []
    page.emulate_media(color_scheme="dark")
    assert [*page.evaluate(BROKEN, DARK), *page.evaluate(CONTRAST)] == []
    page.keyboard.press("Escape")
    page.get_by_role("form", name="Fork").wait_for(state="detached")


def focused(page: Any) -> str:
    """What has the focus: its role or element, and what it says."""
    told = "e => `${e.getAttribute('role') ?? e.localName} ${e.ariaLabel ?? e.textContent.slice(0, 40)}`"
    return str(page.evaluate(f"({told})(document.activeElement)"))


def test_the_keyboard_alone_goes_from_the_list_to_what_an_exploit_changed(visit: Visit, results: Path) -> None:
    page = visit.to("")
    page.get_by_role("link", name="pbt").focus()
    page.keyboard.press("Enter")
    page.get_by_role("region", name="Best so far").wait_for()
    assert focused(page).startswith("main")

    page.get_by_role("link", name="lineage").press("Enter")
    page.locator("svg [data-trial]").first.wait_for()
    for _ in range(20):
        page.keyboard.press("Tab")
        if focused(page).startswith("button " + trial_ids(results, "pbt")[0].split("_")[0]):
            break
    assert page.evaluate("getComputedStyle(document.activeElement.querySelector('.back')).strokeWidth") == "2px"
    page.keyboard.press("Enter")

    page.get_by_role("heading", name="Trial").wait_for()
    assert "trial=" in page.url


def test_the_first_tab_leads_past_the_head_of_the_page(visit: Visit) -> None:
    page = visit.to("e/asha/trials")
    page.locator("tr[data-trial]").first.wait_for()

    page.keyboard.press("Tab")
    assert focused(page) == "a Skip to the content"
    page.keyboard.press("Enter")
    assert focused(page).startswith("main")
    for _ in range(2):
        page.keyboard.press("Tab")
    assert focused(page) == "button #"


@pytest.mark.parametrize("width", [320, 640])
def test_enlarged_to_four_or_two_times_nothing_needs_scrolling_sideways(
    visit: Visit, results: Path, width: int
) -> None:
    """A window of 1280 pixels, zoomed (WCAG 1.4.10)."""
    visit.page.set_viewport_size({"width": width, "height": 256 if width == 320 else 400})
    for view in (
        "",
        "e/asha/",
        "e/asha/curves",
        "e/asha/parameters",
        f"e/mixed/trial/{trial_ids(results, 'mixed')[3]}",
    ):
        page = visit.to(view)
        page.locator("main :is(canvas, table)").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view


def test_back_and_forward_bring_filter_view_and_moment_again(visit: Visit) -> None:
    page = visit.to("e/asha/trials?filter=width+%3D+64")
    page.locator("tr[data-trial]").first.wait_for()
    page.get_by_role("link", name="overview").click()
    page.get_by_role("slider", name="Moment").fill("300")
    page.get_by_text("As it was at fact 300").wait_for()

    page.go_back()
    page.get_by_text("As it was at fact").wait_for(state="detached")
    assert page.get_by_label("Filter").input_value() == "width = 64"
    page.go_back()
    page.locator("tr[data-trial]").first.wait_for()
    page.go_forward()
    page.go_forward()
    page.get_by_text("As it was at fact 300").wait_for()
    assert page.get_by_role("slider", name="Moment").input_value() == "300"
