"""The page of `tuner ui` in a real browser, beside optuna-dashboard: first pictures, a filter, memory, scrolling.

A headless Chromium without anything in its cache asks a server that has read the experiment. `trials_*_s`: from the
request to the frame after the one in which the list of trials is filled; `overview_*_s`: the same of the plot of the
metric over all trials. `filter_*_ms`: from a filter (ours: the words `loss < 0.1`; theirs: a click that hides the
pruned) to the frame after the one in which it shows what is left. Memory after that, with the list open: JavaScript's
after a collection, the process's as its share (PSS); the server's is its RSS. `fetched_kb`: bodies of the page, its
scripts and its styles, as they are sent. Scrolling: from the first row to the last in 120 steps, one a frame.
optuna-dashboard reads a SQLite file with the same trials, and has its answer ready too. Its 100,000 trials are left
out unless BENCH_DASHBOARD=100000 (its makers say that more than 10,000 are not supported).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import page_browser as at
import page_data
from measuring import main, median

TURNS = 3


class Looks(NamedTuple):
    """Where a system shows what, and how it is told there; the conditions and functions are JavaScript."""

    trials: str
    filled: str
    overview: str
    drawn: str
    act: str
    said: str
    scroll: str


OURS = Looks(
    trials=f"e/{page_data.NAME}/trials",
    filled="document.querySelectorAll('tr[data-trial]').length > 9",
    overview=f"e/{page_data.NAME}/",
    drawn="window.drawn",
    act="""() => {
      const field = document.querySelector('input[aria-label=Filter]');
      field.value = 'loss < 0.1';
      field.dispatchEvent(new Event('input', { bubbles: true }));
    }""",
    said="() => document.querySelector('.rows table').getAttribute('aria-rowcount')",
    scroll=".rows",
)
THEIRS = Looks(
    trials="dashboard/studies/1/trials",
    filled="document.querySelectorAll('.MuiListItemButton-root .MuiChip-root').length > 5",
    overview="dashboard/studies/1",
    drawn="document.querySelector('#plot-history .point, #plot-history canvas')",
    act="""() => {
      const items = [...document.querySelectorAll('li[role=menuitem]')];
      items.find((item) => /Pruned/.test(item.textContent)).click();
    }""",
    said="() => /[0-9]+ Trials/.exec(document.body.textContent)[0]",
    scroll="",
)
# A point of ours on the canvas: a dot of many trials is a square, of few a disc.
MARKED = """
for (const name of ["arc", "fillRect"]) {
  const own = CanvasRenderingContext2D.prototype[name];
  CanvasRenderingContext2D.prototype[name] = function (...given) {
    window.drawn = true;
    return own.apply(this, given);
  };
}
"""


def _measured(server: at.Server, looks: Looks, prepare: Callable[[Any], None], turns: int) -> dict[str, float]:
    trials, overview, filters, scrolls = [], [], [], []
    with at.browser() as launched:
        for _ in range(turns):
            with at.page(launched, server) as page, contextlib.suppress(TimeoutError):
                page.add_init_script(MARKED)
                overview.append(at.picture_s(page, server.root + looks.overview, looks.drawn))
            with at.page(launched, server) as page:
                trials.append(at.picture_s(page, server.root + looks.trials, looks.filled))
                prepare(page)
                filters.append(at.filtered_ms(page, looks.act, looks.said))
                memory = at.memory_mb(launched, page)
                if looks.scroll:
                    page.get_by_label("Filter").fill("")
                    page.wait_for_timeout(500)
                    scrolls.append(page.evaluate(at.SCROLLED, [looks.scroll, 120]))
    found = {"trials_s": median(trials), "filter_ms": median(filters), **memory}
    if overview:
        found["overview_s"] = median(overview)
    if scrolls:
        found["frame_ms"] = median([times[len(times) // 2] for times in scrolls])
        found["worst_frame_ms"] = median([times[-1] for times in scrolls])
    return found | {"server_mb": server.rss_mb}


def _fetched(server: at.Server, looks: Looks) -> float:
    """What comes over the wire for the page itself, scripts and styles, compressed where it is."""
    sent: list[float] = []
    with at.browser() as launched, at.page(launched, server) as page:
        session = page.context.new_cdp_session(page)
        session.send("Network.enable")
        asked: dict[str, str] = {}
        session.on("Network.requestWillBeSent", lambda said: asked.update({said["requestId"]: said["request"]["url"]}))

        def loaded(said: dict[str, Any]) -> None:
            address = asked.get(said["requestId"], "")
            if not address.endswith(".json") and "/api/" not in address:
                sent.append(said["encodedDataLength"])

        session.on("Network.dataReceived", loaded)
        at.picture_s(page, server.root + looks.trials, looks.filled)
    return sum(sent) / 1e3


def _sizes(
    sizes: list[int],
    served: Callable[[int, Path], AbstractContextManager[at.Server]],
    warm: str,
    looks: Looks,
    prepare: Callable[[Any], None] = lambda page: None,
    turns: Callable[[int], int] = lambda size: TURNS,
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for size in sizes:
        with tempfile.TemporaryDirectory() as home, served(size, Path(home)) as server:
            asked = urllib.request.Request(server.root + warm)
            if "token=" in server.cookie:
                asked.add_header("Authorization", "Bearer " + server.cookie.partition("token=")[2])
            with urllib.request.urlopen(asked, timeout=at.PATIENCE_S) as answer:
                answer.read()
            for name, value in _measured(server, looks, prepare, turns(size)).items():
                stem, _, unit = name.rpartition("_")
                found[f"{stem}_{size}_{unit}"] = value
            found["fetched_kb"] = _fetched(server, looks)
    return found


def _ours() -> dict[str, Any]:
    sizes = [int(size) for size in os.environ.get("BENCH_TRIALS", "1000 10000 100000").split()]
    return _sizes(
        sizes,
        lambda size, home: at.ours(page_data.experiment(size), home=home),
        f"e/{page_data.NAME}/trials.json",
        OURS,
    )


def _menu(page: Any) -> None:
    page.locator("button:has(svg[data-testid=FilterListIcon])").click()
    page.locator("li[role=menuitem]").first.wait_for()


def _dashboard() -> dict[str, Any]:
    most = int(os.environ.get("BENCH_DASHBOARD", "10000"))
    sizes = [int(size) for size in os.environ.get("BENCH_TRIALS", "1000 10000").split() if int(size) <= most]
    return _sizes(
        sizes,
        lambda size, home: at.dashboard(page_data.study(size), home=home),
        "api/studies/1?after=0",
        THEIRS,
        _menu,
        lambda size: TURNS if size <= 1_000 else 1,  # a picture takes it a minute
    )


if __name__ == "__main__":
    main({"ours": _ours, "dashboard": _dashboard})
