"""A run with its page open: how long a result takes to its point, and what ten pages cost the driver.

`to_point_s`: from just before `report` in a real trial, by its own clock, to the frame after the one in which the curve
that is shown has been drawn again with one point more, in a headless Chromium on the same machine; the median of 40
results, one each 0.35 s. `calls_of_none`: calls of functions, Python's and C's, in the driver's thread for 2,000
results, with ten pages open beside it, of those without any: a run in one process, whose profile is that thread's. Five
of the pages are Chromium's and five are bare readers of the stream. `cpu_of_none` is the CPU time of that thread for
these results, of that without; pairs take turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import page_browser as at
from measuring import QUIET, main, median

RESULTS, PAIRS, PAGES, READERS = 2_000, 3, 5, 5
SLOW = """
import sys, time
import tuner as tune

def train(config):
    for count in range(10_000):
        time.sleep(0.35)
        tune.report({"sent": time.time()})

tune.run(train, name="run", metric="sent", mode="max", storage_path=sys.argv[1], verbose=0)
"""
COUNTED = """
import cProfile, json, sys, threading, time
import tuner as tune

RESULTS, profile, found = int(sys.argv[2]), cProfile.Profile(), {}

class Counts(tune.Callback):
    seen = 0
    def on_trial_result(self, trial, result, **info):
        Counts.seen += 1
        if Counts.seen == 200:
            print("READY", flush=True)
            sys.stdin.readline()
            profile.enable()
            found["cpu_s"] = -time.thread_time()
        elif Counts.seen == 200 + RESULTS:
            profile.disable()
            found["cpu_s"] += time.thread_time()
            found["calls"] = sum(entry.callcount for entry in profile.getstats())

def train(config):
    for count in range(RESULTS + 300):
        tune.report({"loss": 1 / (count + 1)})

tune.run(train, name="run", metric="loss", mode="min", storage_path=sys.argv[1], verbose=0, executor="inline",
         callbacks=[Counts()])
print("MARK", json.dumps(found), flush=True)
"""
# The curve with its new point is the first path with one corner more than any before.
POINTS = """
const parse = JSON.parse, own = CanvasRenderingContext2D.prototype;
const { beginPath, lineTo, stroke } = own;
let waiting = [], corners = 0, most = 2;
window.took = [];
JSON.parse = (text, ...more) => {
  const said = parse(text, ...more);
  waiting.push(...(said?.results?.values?.sent ?? []));
  return said;
};
own.beginPath = function () {
  corners = 0;
  return beginPath.call(this);
};
own.lineTo = function (x, y) {
  corners++;
  return lineTo.call(this, x, y);
};
own.stroke = function (...given) {
  if (corners > most) {
    const drawn = waiting;
    [waiting, most] = [[], corners];
    requestAnimationFrame(() => window.took.push(...drawn.map((sent) => Date.now() / 1000 - sent)));
  }
  return stroke.apply(this, given);
};
"""
TAKEN = """async (count) => {
  while (window.took.length <= count) await new Promise(requestAnimationFrame);
  return window.took.slice(1);
}"""


@contextmanager
def _script(source: str, place: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    path = place / "script.py"
    path.write_text(source)
    command = [sys.executable, str(path), str(place), *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **QUIET}
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def _to_point() -> float:
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        with _script(SLOW, place), at.ours(place, home=place) as server, at.browser() as launched:
            with at.page(launched, server) as page:
                page.add_init_script(POINTS)
                page.goto(server.root + "e/run/curves")
                took: list[float] = page.evaluate(TAKEN, 40)
                return median(took)


def _reads(server: at.Server, opened: list[Any]) -> None:
    """A reader of the stream that is no browser."""
    asked = urllib.request.Request(server.root + "e/run/events?since=0")
    asked.add_header("Authorization", "Bearer " + server.cookie.partition("token=")[2])
    answer = urllib.request.urlopen(asked, timeout=60)
    opened.append(answer)

    def drain() -> None:
        try:
            while answer.read1(1 << 16):
                pass
        except (OSError, ValueError, AttributeError):
            pass  # closed at the end

    threading.Thread(target=drain, daemon=True).start()


def _results(pages: int, readers: int) -> dict[str, float]:
    """CPU and calls of the driver for the results, with so many looking."""
    with tempfile.TemporaryDirectory() as made, ExitStack() as stack:
        place = Path(made)
        process = stack.enter_context(_script(COUNTED, place, str(RESULTS)))
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "READY\n"
        opened: list[Any] = []
        if pages or readers:
            server = stack.enter_context(at.ours(place, home=place))
            for _ in range(readers):
                _reads(server, opened)
            launched = stack.enter_context(at.browser()) if pages else None
            for number in range(pages):
                page = stack.enter_context(at.page(launched, server))
                page.goto(server.root + "e/run/" + ("curves", "trials", "")[number % 3])
                page.locator("main > *").first.wait_for()
        process.stdin.write("\n")
        process.stdin.flush()
        for line in process.stdout:
            if line.startswith("MARK "):
                found: dict[str, float] = json.loads(line[5:])
                return found
    raise RuntimeError("the run has ended without its results")


def _ours() -> dict[str, Any]:
    pairs = [(_results(0, 0), _results(PAGES, READERS)) for _ in range(PAIRS)]
    none, ten = pairs[0]
    return {
        "to_point_s": _to_point(),
        "calls_per_result": none["calls"] / RESULTS,
        "calls_of_none": ten["calls"] / none["calls"],
        "cpu_of_none": median([beside["cpu_s"] / alone["cpu_s"] for alone, beside in pairs]),
    }


if __name__ == "__main__":
    main({"ours": _ours})
