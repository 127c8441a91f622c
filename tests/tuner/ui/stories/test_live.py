"""What a person sees and orders on the page of a run that is under way, and what of it is on disk."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import tuner as tune
from tests.tuner.ui.stories.conftest import ROOT, Served, Visit, serving
from tuner.experiment.trial import Trial


class Run:
    """A driver in a process group of its own."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.start()

    def start(self) -> None:
        script = ROOT / "tests" / "scripts" / "run_for_the_page.py"
        command = [sys.executable, script, self.where]
        self.process = subprocess.Popen(command, cwd=self.where, stdout=subprocess.DEVNULL, start_new_session=True)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def trials(self) -> list[Trial]:
        return list(tune.open_experiment(self.where / "live").trials)

    def orders(self) -> list[tuple[str, str]]:
        """(word, state) of what was ordered, as the journal has it."""
        orders = tune.open_experiment(self.where / "live").orders.values()
        return [(record["order"]["order"], record["state"]) for record in orders]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    run = Run(tmp_path_factory.mktemp("run"))
    yield run
    (run.where / "enough").touch()
    run.process.wait(60)


@pytest.fixture(scope="module")
def served(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(run.where, home=tmp_path_factory.mktemp("home")) as it:
        yield it


@pytest.fixture
def trial(visit: Visit) -> str:
    """The first trial, once it stands in the table."""
    page = visit.to("e/live/trials")
    page.locator("tr[data-trial] .state.RUNNING").first.wait_for()
    return str(page.locator("tr[data-trial]").first.get_attribute("data-trial"))


def ordered(page: Any, word: str) -> None:
    """Click, and wait until the driver has answered."""
    button = page.get_by_role("button", name=word, exact=True)
    button.wait_for()
    done = (
        page.get_by_role("region", name="Orders", exact=True)
        .get_by_role("row", name=word.lower())
        .filter(has_text="done")
    )
    before = done.count()
    button.click()
    done.nth(before).wait_for()


def test_results_appear_by_themselves(visit: Visit, trial: str) -> None:
    cells = visit.page.locator(f'tr[data-trial="{trial}"] td')
    before = int(cells.nth(3).inner_text())

    visit.page.wait_for_function(
        "([id, before]) => Number(document.querySelector(`tr[data-trial='${id}']`).cells[3].textContent) > before + 2",
        arg=[trial, before],
    )


def test_a_click_saves_and_the_shelf_shows_it(visit: Visit, run: Run, trial: str) -> None:
    page = visit.to(f"e/live/trial/{trial}")

    ordered(page, "Save")

    assert ("save", "done") in run.orders()
    page.get_by_role("region", name="Checkpoints", exact=True).get_by_role(
        "cell", name="kept", exact=True
    ).first.wait_for()


def test_a_click_pauses_and_another_lets_it_go_on(visit: Visit, run: Run, trial: str) -> None:
    page = visit.to(f"e/live/trial/{trial}")

    ordered(page, "Pause")
    page.locator("h2 .state.PAUSED").wait_for()
    assert run.trials()[0].held
    ordered(page, "Go")
    page.locator("h2 .state.RUNNING").wait_for()


def test_a_pinned_checkpoint_stays_and_says_so(visit: Visit, run: Run, trial: str) -> None:
    page = visit.to(f"e/live/trial/{trial}")
    ordered(page, "Pause")  # so that none of its checkpoints goes in the meantime

    page.get_by_role("button", name="Pin checkpoint").last.click()

    page.get_by_role("cell", name="pinned, kept").first.wait_for()
    assert any(record.pinned for record in run.trials()[0].checkpoints)


def test_a_checkpoint_gets_a_name_by_a_click_and_what_is_refused_says_why_beside_it(
    visit: Visit, run: Run, trial: str
) -> None:
    page = visit.to(f"e/live/trial/{trial}")
    shelf = page.get_by_role("region", name="Checkpoints", exact=True)
    page.get_by_role("button", name="Unpin checkpoint").first.wait_for()  # it was pinned above, and stays

    def name(given: str) -> None:
        pinned = shelf.get_by_role("row").filter(has=page.get_by_role("button", name="Unpin"))
        pinned.first.get_by_role("button", name="Tag").click()
        page.get_by_label("a name for").fill(given)
        page.get_by_role("button", name="Give the name").click()

    name("keep-me")
    shelf.locator("b.tag", has_text="keep-me").wait_for()
    name("x" * 61)
    shelf.get_by_text("tag: refused").wait_for()
    assert len(visit.wrong) == 1 and "400" in visit.wrong.pop()  # as the browser says it
    assert [tag for record in run.trials()[0].checkpoints for tag in record.tags] == ["keep-me"]


def test_two_tabs_of_one_experiment_show_the_same(visit: Visit, context: Any, trial: str) -> None:
    another = str(visit.page.locator("tr[data-trial]").nth(1).get_attribute("data-trial"))
    with closing(context.new_page()) as other:
        other.goto(f"{visit.served.root}e/live/trials")
        other.locator(f'tr[data-trial="{another}"] .state.RUNNING').wait_for()

        ordered(visit.to(f"e/live/trial/{another}"), "Pause")

        other.locator(f'tr[data-trial="{another}"] .state.PAUSED').wait_for()


HIDDEN = """(hidden) => {
  Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
  document.dispatchEvent(new Event('visibilitychange'));
}"""
"""What a browser does when another tab is chosen; a headless one has no other way to it."""


def test_a_page_that_nobody_sees_rests_and_catches_up_when_it_is_seen_again(visit: Visit, run: Run, trial: str) -> None:
    page = visit.page
    page.clock.install()
    visit.to("e/live/trials")
    cell = page.locator("tr[data-trial]:has(.RUNNING)").first.locator("td").nth(3)
    cell.wait_for()
    page.evaluate(HIDDEN, True)
    page.clock.fast_forward(5_000)  # so long it listens, for who looks away and back
    rested = page.evaluate("new Promise((done) => requestAnimationFrame(() => done(document.body.innerHTML)))")
    before, stood = int(cell.inner_text()), max(each.iteration for each in run.trials())

    while max(each.iteration for each in run.trials()) < stood + 5:
        page.clock.run_for(100)
    assert page.evaluate("document.body.innerHTML") == rested
    page.evaluate(HIDDEN, False)

    page.wait_for_function("([cell, least]) => +cell.textContent > least", arg=[cell.element_handle(), before + 4])


def test_a_fork_is_a_trial_with_another_config(visit: Visit, run: Run, trial: str) -> None:
    page = visit.to(f"e/live/trial/{trial}")
    before = len(run.trials())

    page.get_by_role("button", name="Fork", exact=True).click()
    page.get_by_label("rate").fill("7.5")
    page.get_by_role("button", name="Start the fork").click()
    page.get_by_text(re.compile("fork: (taken|done)")).wait_for()

    page.goto(visit.served.root + "e/live/trials?filter=rate+%3D+7.5")
    page.locator("tr[data-trial] .state.RUNNING").wait_for()
    forked = run.trials()[before]
    assert forked.config["rate"] == 7.5 and forked.iteration


def test_output_is_followed(visit: Visit, trial: str) -> None:
    page = visit.to(f"e/live/trial/{trial}")

    page.get_by_role("log").get_by_text("a line of output").wait_for()


def test_a_click_stops(visit: Visit, run: Run, trial: str) -> None:
    ids = [row.get_attribute("data-trial") for row in visit.page.locator("tr[data-trial]").all()]
    page = visit.to(f"e/live/trial/{ids[1]}")

    ordered(page, "Stop")

    page.locator("h2 .state.TERMINATED").wait_for()
    assert run.trials()[1].is_finished()


def test_a_page_that_may_only_read_has_no_buttons(
    browser: Any, run: Run, trial: str, tmp_path: Path, visit: Visit
) -> None:
    with serving(run.where, home=tmp_path, more=("--no-token",)) as served:
        page = browser.new_page()
        page.goto(f"{served.root}e/live/trial/{trial}")
        page.get_by_text("This page is read-only.").wait_for()
        assert page.get_by_role("button", name="Stop").count() == 0
        assert page.request.post(f"{served.root}e/live/orders", data={"order": "stop", "trial": trial}).status == 403
        page.close()


def test_an_order_from_another_site_is_refused(visit: Visit, run: Run, trial: str) -> None:
    before = run.orders()

    answer = visit.page.request.post(
        visit.served.root + "e/live/orders",
        data={"order": "stop", "trial": "all"},
        headers={"Origin": "http://elsewhere.example"},
    )

    assert answer.status == 403
    assert run.orders() == before


def test_a_page_goes_on_when_its_server_was_killed_and_is_there_again(visit: Visit, run: Run, trial: str) -> None:
    page = visit.page
    visit.served.kill()
    page.get_by_text("The connection is lost").wait_for()

    visit.served.start("--port", str(visit.served.port))
    page.get_by_text("The connection is lost").wait_for(state="detached")
    row = page.locator("tr[data-trial]:has(.RUNNING)").first
    before = int(row.locator("td").nth(3).inner_text())
    visit.wrong.clear()  # the browser has said that it could not connect
    grown = "before => [...document.querySelectorAll('tr[data-trial]')].some(row => +row.cells[3].textContent > before)"
    page.wait_for_function(grown, arg=before + 2)


def test_a_run_that_is_killed_and_resumed_under_an_open_page(visit: Visit, run: Run, trial: str) -> None:
    page = visit.page

    run.kill()
    page.locator("h1 .killed").wait_for()
    page.get_by_role("row").filter(has_text="running: the driver was killed").first.wait_for()
    run.start()

    page.locator("h1 .running").wait_for()
    page.locator("tr[data-trial] .state.RUNNING").first.wait_for()
    page.get_by_role("row").filter(has_text="the driver was killed").first.wait_for(state="detached")
