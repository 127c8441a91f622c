"""A page's server and a headless Chromium that looks at it, as the measurements of the page share them."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

WIDTH, HEIGHT = 1280, 800
PATIENCE_S = 120.0

WATCHED = """
window.seen = new Promise((done) => {
  setTimeout(() => done(null), %d);
  const look = () => (%s) ? requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())))
                          : requestAnimationFrame(look);
  requestAnimationFrame(look);
});
"""
"""Looks once a frame; the time is that of the frame after the one in which it stands, counted from the navigation."""
FILTERED = """async ([act, text]) => {
  const said = eval(text), before = said();
  const began = performance.now();
  eval(act)();
  await new Promise((done) => {
    const look = () => said() !== before ? requestAnimationFrame(() => requestAnimationFrame(done))
                                         : requestAnimationFrame(look);
    look();
  });
  return performance.now() - began;
}"""
SCROLLED = """async ([selector, frames]) => {
  const box = document.querySelector(selector), whole = box.scrollHeight - box.clientHeight, times = [];
  const frame = () => new Promise(requestAnimationFrame);
  let before = await frame();
  for (let n = 1; n <= frames; n++) {
    box.scrollTop = whole * n / frames;
    const now = await frame();
    times.push(now - before);
    before = now;
  }
  return times.sort((a, b) => a - b);
}"""


class Server(NamedTuple):
    """One that answers.

    Args:
        root: its address, with a slash at its end.
        cookie: the address that gives a browser what it needs to be let in.
    """

    root: str
    cookie: str
    process: psutil.Process

    @property
    def rss_mb(self) -> float:
        return float(self.process.memory_info().rss / 1e6)


@contextmanager
def ours(*places: Path, home: Path) -> Iterator[Server]:
    """`tuner ui` of these experiments."""
    command = [sys.executable, "-m", "tuner.cli", "ui", *map(str, places)]
    environment = {"HOME": str(home), "XDG_STATE_HOME": str(home), "PATH": "/usr/bin:/bin"}
    with _running(command, home, environment) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        yield Server(address.partition("?")[0], address, psutil.Process(process.pid))


@contextmanager
def dashboard(study: str, *, home: Path) -> Iterator[Server]:
    """optuna-dashboard of a study."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    source = "import sys; from optuna_dashboard._cli import main; main()"
    command = [sys.executable, "-c", source, study, "--host", "127.0.0.1", "--port", str(port)]
    with _running(command, home, {"HOME": str(home), "PATH": "/usr/bin:/bin"}) as process:
        root = f"http://127.0.0.1:{port}/"
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                urllib.request.urlopen(root + "api/meta", timeout=10).read()
                break
            except OSError:
                if time.monotonic() > until or process.poll() is not None:
                    raise
                time.sleep(0.1)
        yield Server(root, root + "api/meta", psutil.Process(process.pid))


@contextmanager
def _running(command: list[str], home: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    with (home / "server.err").open("w") as said:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, cwd=home, env=environment)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.communicate(timeout=30)
            except subprocess.TimeoutExpired:  # it is still at work on an answer
                process.kill()
                process.communicate()


@contextmanager
def browser() -> Iterator[Any]:
    """A headless Chromium; the system's where there is one."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--enable-precise-memory-info"]
        )
        try:
            yield launched
        finally:
            launched.close()


@contextmanager
def page(launched: Any, server: Server) -> Iterator[Any]:
    """A page of a browser that has nothing in its cache, but is let in."""
    context = launched.new_context(viewport={"width": WIDTH, "height": HEIGHT})
    context.set_default_timeout(PATIENCE_S * 1000)
    try:
        context.request.get(server.cookie, timeout=PATIENCE_S * 1000)
        yield context.new_page()
    finally:
        context.close()


def picture_s(page: Any, address: str, stands: str) -> float:
    """Seconds from the request to the first picture in which a condition in JavaScript holds. Raises TimeoutError."""
    page.add_init_script(WATCHED % (PATIENCE_S * 1000, stands))
    page.goto(address, wait_until="commit")
    seen: float | None = page.evaluate("window.seen")
    if seen is None:
        raise TimeoutError(f"{address} shows nothing after {PATIENCE_S:.0f} s")
    return seen / 1000


def filtered_ms(page: Any, act: str, text: str) -> float:
    """Milliseconds from an act to the picture of what it changes; both functions in JavaScript."""
    return float(page.evaluate(FILTERED, [act, text]))


def memory_mb(launched: Any, page: Any) -> dict[str, float]:
    """What the page's JavaScript holds after a collection, and its process, with its share of what it shares."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    heap = session.send("Runtime.getHeapUsage")
    held = heap["usedSize"] + heap.get("backingStorageSize", 0)
    processes = launched.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    drawing = [_pss(process["id"]) for process in processes if process["type"] == "renderer"]
    return {"heap_mb": held / 1e6, "process_mb": max(drawing) / 1e6}


def _pss(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0
