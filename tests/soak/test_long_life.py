"""One life of many trials, with a replica and the page open: what it holds does not grow with what it has done.

`SOAK_TRIALS` and `SOAK_MINUTES`, whichever comes first, say how long; `make test-wide` has one that tries the means.
Lives that resume are a test each, of `SOAK_LIFE_MINUTES`; in the directory `SOAK_PLACE` they go on when run again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest

TRIALS, MINUTES = int(os.environ.get("SOAK_TRIALS", "100000")), float(os.environ.get("SOAK_MINUTES", "100"))
LIVES, LIFE_MINUTES = 6, float(os.environ.get("SOAK_LIFE_MINUTES", "60"))
ALLOWED = 4096
"""Bytes of the driver for each trial that it knows."""

DRIVER = """
import os, sys, time
import tuner as tune

class Ended(tune.Callback):
    ended = 0
    def on_trial_complete(self, iteration, trials, trial, **info):
        self.ended += 1
        if self.ended % 10 == 0:
            with open("ended.new", "w") as file:
                file.write(str(self.ended))
            os.replace("ended.new", "ended")
        while self.ended == 10 and not os.path.exists("watched"):
            time.sleep(0.01)  # until the page is open

def train(config):
    for n in (1, 2):
        saved = tune.Checkpoint.from_dict({"n": n, "x": config["x"]}) if config["saves"] else None
        tune.report({"loss": config["x"] / n}, checkpoint=saved)

if __name__ == "__main__":
    here, trials, minutes = os.getcwd(), int(sys.argv[1]), float(sys.argv[2])
    tune.run(
        train, name="e", storage_path=here + "/storage", num_samples=trials, seed=1, verbose=0, resume="AUTO",
        sync_config=tune.SyncConfig(upload_dir="file://" + here + "/place"), callbacks=[Ended()],
        config={"x": tune.uniform(0, 1), "saves": tune.choice([True] + [False] * 9)},
        metric="loss", mode="min", checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
        resources_per_trial={"cpu": 1}, max_concurrent_trials=2, time_budget_s=60 * minutes,
    )
"""


@dataclass(frozen=True)
class Sample:
    """What is held at one moment, after so many trials; bytes and numbers."""

    trials: int
    seconds: float
    memory: int
    descriptors: int
    threads: int
    processes: int
    """With all that descend from it, but no driver."""
    page_memory: int
    page_descriptors: int
    page_threads: int
    disk: int
    """Bytes of the experiment and its replica, as of the last two minutes."""


def sampled(driver: psutil.Process, page: psutil.Process, ended: Path, began: float, disk: int) -> Sample:
    return Sample(
        int(ended.read_text()) if ended.exists() else 0,
        round(time.monotonic() - began, 1),
        driver.memory_info().rss,
        driver.num_fds(),
        driver.num_threads(),
        len(driver.children(recursive=True)),
        page.memory_info().rss,
        page.num_fds(),
        page.num_threads(),
        disk,
    )


def below(directory: Path) -> int:
    """What `du` says, in bytes of content; things come and go while it looks."""
    said = subprocess.run(["du", "-sb", directory], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return int(said.stdout.split()[0])


def per_trial(samples: list[Sample], what: Callable[[Sample], int]) -> float:
    """The slope of a straight line through them."""
    trials = np.array([each.trials for each in samples], float)
    spread = trials - trials.mean()
    return float(spread @ [what(each) for each in samples] / max(spread @ spread, 1))


def figures(samples: list[Sample]) -> dict[str, float]:
    """What the last nine tenths of the trials added: of memory per trial, of the rest what never went away.

    Running trials open and close things all the time: the fewest that a fifth of the samples saw are what it holds.
    """
    later = [each for each in samples if each.trials >= samples[-1].trials / 10]
    part = max(len(later) // 5, 1)
    first, last = later[:part], later[-part:]
    memory = per_trial(later, lambda each: each.memory)
    page = per_trial(later, lambda each: each.page_memory)
    found: dict[str, float] = {
        "trials": samples[-1].trials,
        "minutes": round(samples[-1].seconds / 60, 1),
        "memory MB": round(later[0].memory / 1e6, 1),
        "memory B per trial": round(memory),
        "memory % per 10000 trials": round(100 * 1e4 * (memory - ALLOWED) / later[0].memory, 2),
        "page memory MB": round(later[0].page_memory / 1e6, 1),
        "page memory B per trial": round(page),
        "page memory % per 10000 trials": round(100 * 1e4 * (page - ALLOWED) / later[0].page_memory, 2),
    }
    half = len(later) // 2
    for which, some in (("first", later[:half]), ("second", later[half:])):
        found[f"disk B per trial, {which} half"] = round(per_trial(some, lambda each: each.disk))
    for name in ("descriptors", "threads", "processes", "page_descriptors", "page_threads"):
        fewest = [min(getattr(each, name) for each in some) for some in (first, last)]
        found[name.replace("_", " ")] = fewest[0]
        found[f"{name.replace('_', ' ')} more"] = fewest[1] - fewest[0]
    return found


class OpenPage:
    """The page of the experiment, as a browser that leaves it open: its stream, and its tables now and then."""

    def __init__(self, storage: Path, output: Path) -> None:
        command = [str(Path(sys.executable).with_name("tuner")), "ui", "--no-token", str(storage)]
        self._output = output.open("wb")
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._output, text=True)
        assert self.server.stdout is not None
        self._address = ""
        while not self._address.startswith("http"):
            line = self.server.stdout.readline()
            assert line, output.read_text()
            self._address = next((word for word in line.split() if word.startswith("http")), "")
        self.heard, self._first = 0, threading.Event()
        self._follower = threading.Thread(target=self._follow, daemon=True)
        self._follower.start()
        assert self._first.wait(60), output.read_text()

    def _follow(self) -> None:
        with urllib.request.urlopen(f"{self._address.rstrip('/')}/e/e/events") as stream:
            try:
                for line in stream:
                    self.heard += line.startswith(b"event: ")
                    self._first.set()
            except OSError:
                pass  # the server has ended

    def look(self) -> None:
        for what in ("overview.json", "trials.json"):
            with urllib.request.urlopen(f"{self._address.rstrip('/')}/e/e/{what}") as answer:
                assert answer.read()

    def close(self) -> None:
        self.server.terminate()
        self.server.wait()
        self._follower.join(20)
        assert self.server.stdout is not None
        self.server.stdout.close()
        self._output.close()


def live(place: Path, trials: int, minutes: float, *, every_s: float) -> list[Sample]:
    """One life of a driver, the next one of a place that has had some; what it and its page held, all the time."""
    (place / "driver.py").write_text(DRIVER)
    for name in ("ended", "watched"):
        (place / name).unlink(missing_ok=True)
    began = time.monotonic()
    environment = {**os.environ, "XDG_STATE_HOME": str(place), "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1"}
    with (place / "output").open("wb") as output:
        driver = subprocess.Popen(
            [sys.executable, "driver.py", str(trials), str(minutes)],
            cwd=place,
            stdout=output,
            stderr=output,
            env=environment,
        )
    samples: list[Sample] = []
    page = None
    disk = 0
    try:
        while driver.poll() is None:
            if page is None and (place / "ended").exists():
                page = OpenPage(place / "storage", place / "page")
                (place / "watched").touch()
            if page is not None:
                try:
                    if len(samples) % 60 == 0:
                        disk = below(place / "storage") + below(place / "place")
                    both = psutil.Process(driver.pid), psutil.Process(page.server.pid)
                    sample = sampled(*both, place / "ended", began, disk)
                    if sample.memory == 0:
                        break  # it has just ended
                    samples.append(sample)
                except psutil.NoSuchProcess:
                    break
                if len(samples) % 10 == 0:
                    page.look()
                    (place / "samples").write_text(json.dumps([asdict(each) for each in samples]))
            try:
                driver.wait(every_s)
            except subprocess.TimeoutExpired:
                continue
        assert driver.wait() == 0, (place / "output").read_text()
        assert page is not None and page.heard
        return samples
    finally:
        driver.kill()
        driver.wait()
        if page is not None:
            page.close()


@pytest.mark.soak
@pytest.mark.timeout(int(60 * MINUTES) + 1800)
def test_what_one_long_life_holds_does_not_grow(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    require_flat(figures(live(tmp_path, TRIALS, MINUTES, every_s=2)), record_property)


def require_flat(found: dict[str, float], record_property: Callable[[str, object], None]) -> None:
    for name, value in found.items():
        record_property(name, value)
    assert found["memory % per 10000 trials"] < 1, found
    assert found["page memory % per 10000 trials"] < 1, found
    grown = {name: value for name, value in found.items() if name.endswith(" more") and value > 0}
    assert not grown, found


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where lives go on, one after another."""
    place = os.environ.get("SOAK_PLACE")
    if place is None:
        return tmp_path_factory.mktemp("lives")
    Path(place).mkdir(parents=True, exist_ok=True)
    return Path(place)


@pytest.mark.soak
@pytest.mark.timeout(int(60 * LIFE_MINUTES) + 1800)
@pytest.mark.parametrize("life", range(LIVES))
def test_what_lives_that_resume_hold_does_not_grow(
    life: int, kept: Path, record_property: Callable[[str, object], None]
) -> None:
    before = trials_of(kept)
    found = figures(live(kept, 10 * TRIALS, LIFE_MINUTES, every_s=2))
    assert trials_of(kept) >= before + found["trials"], "what an earlier life ended is lost"
    require_flat({"trials before": before, **found}, record_property)


def trials_of(place: Path) -> int:
    """How many trials have begun there in all lives."""
    return len(list(place.glob("storage/e/train_*")))


def test_short_lives_are_sampled_with_their_replica_and_their_page(tmp_path: Path) -> None:
    for life in (1, 2):
        found = figures(live(tmp_path, 60 * life, 2, every_s=0.05))
        assert found["trials"] > 0 and found["descriptors"] > 0 and found["page descriptors"] > 0
        assert trials_of(tmp_path) == 60 * life
