"""A machine that is lost for good, again and again: what its replica holds is all that the next one has (F04, R10)."""

from __future__ import annotations

import csv
import json
import random
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import killed_script as script
from crash_disk import read_view
from crash_processes import end_family, require_family_gone, start, wait
from crash_replica_rules import look_there
from crash_rules import Floor

import tuner as tune
from tests.soak.counts import count
from trainables.store import verify
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import load_state
from tuner.logger.tensorboard import steps

VICTIMS = ["driver", "uploader", "all"]
FACTS = {
    "generation": 1, "created": 4, "attempt": 4, "result": 20, "published": 20, "forgotten": 10, "copied": 15,
    "deleted": 10, "ended": 4,
}  # fmt: skip
"""Kind -> how many of them there are, about."""
QUICK = 4
PACES = (None, [1500, 0.2], [4000, 300], [1500, 300])
"""Bytes of the journal after which it is compacted, and seconds after which small files go there."""


def drawn(seed: int) -> list[dict[str, Any]]:
    """Where the first few machines are lost, or lose what copies for them."""
    rng = random.Random(seed)
    points = []
    for life in range(rng.choice([1, 2, 3])):
        victim = VICTIMS[seed % len(VICTIMS)] if life == 0 else rng.choice(VICTIMS)
        point: dict[str, Any] = {"id": life, "victim": victim, "where": "driver"}
        if rng.random() < 0.5:
            kind = rng.choice(list(FACTS))
            point.update(fact=kind, nth=rng.randint(1, FACTS[kind]))
        else:
            point["call"] = rng.randint(1, 200)
        points.append(point)
    return points


SEEDS = [seed if seed < QUICK else pytest.param(seed, marks=pytest.mark.soak) for seed in range(60)]


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """What an uninterrupted run with that seed draws."""
    seen: list[float] = []
    tune.run(
        lambda config: {"x": seen.append(config["x"]) or config["x"]},
        config={"x": tune.uniform(0, 1), "storage": ""},
        num_samples=script.TRIALS,
        seed=script.SEED,
        storage_path=tmp_path_factory.mktemp("configs"),
        executor="inline",
        verbose=0,
    )
    return seen


@pytest.fixture(autouse=True)
def tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUNE_DISABLE_TENSORBOARD")


def machine(tmp_path: Path) -> Path:
    """An empty disk, in the place of the last one."""
    here = tmp_path / "here"
    if here.exists():
        shutil.rmtree(here)
    here.mkdir()
    return here


@pytest.mark.parametrize("seed", SEEDS)
def test_f04_a_machine_killed_and_lost_is_continued_from_the_replica(
    seed: int, tmp_path: Path, configs: list[float]
) -> None:
    place, floor = tmp_path / "place", Floor()
    points, pace = drawn(seed), PACES[seed % len(PACES)]
    print(points, pace)
    for point in points:
        here = machine(tmp_path)
        driver = start(here, point, place, pace=pace)
        status = wait(driver, here)
        if (here / f"once-{point['id']}").exists():
            count(f"kills of {point['victim']}")
        assert status == (-signal.SIGKILL if status else 0), (here / "output").read_text()
        if point["victim"] == "uploader":
            assert status == 0, "a run does not end because what copies for it did"
        if status and point["victim"] == "all":
            end_family(driver.pid)  # nothing is left there that could do it
        require_family_gone(driver.pid, within_s=10)
        if (place / "e" / "experiment.json").exists():
            floor.rise(read_view(place))
            look_there(place / "e", floor)
    here = machine(tmp_path)
    last = start(here, None, place, pace=pace)
    assert wait(last, here) == 0, (here / "output").read_text()
    require_family_gone(last.pid, within_s=10)
    lost = any(point["victim"] != "uploader" for point in points)
    check_end(here / "e", place / "e", configs, lost=lost)


def check_end(here: Path, place: Path, configs: list[float], *, lost: bool) -> None:
    """Both sides hold the whole experiment. `lost`: some kept checkpoints may have been, with their machine."""
    mine, its = load_state(ExperimentPaths(here)), load_state(ExperimentPaths(place))
    assert [trial.config["x"] for trial in its.trials] == configs
    assert [(trial.trial_id, trial.status) for trial in mine.trials] == [
        (trial.trial_id, trial.status) for trial in its.trials
    ]
    for trial in its.trials:
        assert trial.status == "TERMINATED", trial.error
        values = {epoch: script.value_of(trial.config["x"], epoch) for epoch in range(1, script.EPOCHS + 1)}
        for side in (here, place):
            rows = [json.loads(line) for line in (side / trial.dirname / "result.json").read_text().splitlines()]
            assert [(row["training_iteration"], row["v"]) for row in rows] == list(values.items())
            with open(side / trial.dirname / "progress.csv", newline="") as file:
                table = [(int(row["training_iteration"]), float(row["v"])) for row in csv.DictReader(file)]
            assert table == list(values.items())
            assert steps(side / trial.dirname) == set(values)
        listing = verify.scan(place / trial.dirname)
        assert not listing.broken and not listing.unknown
        assert not [problem for published in listing.complete for problem in verify.problems(published.path)]
        assert {record.ref for record in trial.checkpoints} == {published.ref for published in listing.complete}
        best = sorted(values, key=lambda epoch: (-values[epoch], epoch))[:2]
        kept = {published.ref.iteration for published in listing.complete}
        assert kept == {*best, script.EPOCHS} or (lost and script.EPOCHS in kept and len(kept) <= 3)
