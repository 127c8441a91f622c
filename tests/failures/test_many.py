"""As many as people have: trials at once, trials and results in all, files in one checkpoint.

Each is small in the normal suite and in full under soak; what grows with the square of its number is told by two sizes.
"""

from __future__ import annotations

import collections
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from checkpoint_faults import iterations, restored, rows, run, save

import tuner as tune
from tuner.cli import main
from tuner.executors import LocalExecutor


def bytes_below(directory: Path) -> int:
    """What `du` says, in bytes of content."""
    return int(subprocess.run(["du", "-sb", directory], check=True, capture_output=True).stdout.split()[0])


# --- trials and results ---------------------------------------------------------------------------------------


def reports(config: dict[str, Any]) -> None:
    for n in range(1, config["n"] + 1):
        tune.report({"n": n, "score": config["x"] * n})


def many_trials(path: Path, trials: int, results: int) -> float:
    """Seconds for so many trials, which are all there afterwards, once each; then nothing is left to do."""
    settings = {"config": {"x": tune.uniform(0, 1), "n": results}, "num_samples": trials, "seed": 1}
    settings |= {"executor": "inline", "metric": "score", "mode": "max"}
    began = time.monotonic()
    done = run(reports, path, **settings).trials
    took = time.monotonic() - began
    assert collections.Counter((trial.status, trial.iteration) for trial in done) == {("TERMINATED", results): trials}
    assert [row["n"] for trial in (done[0], done[-1]) for row in rows(trial)] == [*range(1, results + 1)] * 2
    began = time.monotonic()
    again = run(reports, path, resume="AUTO", **settings)
    shown = time.monotonic() - began
    assert len(again.trials) == trials and {trial.attempt for trial in again.trials} == {1}
    assert again.best_trial.last_result["score"] == max(trial.last_result["score"] for trial in done)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{trials} trials of {results} results: {took:.1f} s, {took / trials / results * 1e6:.0f} us a result, shown "
        f"again in {shown:.1f} s, {bytes_below(path / 'e' / 'journal') / trials:.0f} B of journal a trial, "
        f"{memory:.0f} MB at most"
    )
    return took


def test_three_hundred_trials_of_15_results_are_all_there_once(tmp_path: Path) -> None:
    many_trials(tmp_path, 300, 15)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_20000_trials_of_15_results_are_all_there_once(tmp_path: Path) -> None:
    many_trials(tmp_path, 20_000, 15)


# --- files of one checkpoint ----------------------------------------------------------------------------------


def saves_many(config: dict[str, Any]) -> None:
    """Saves so many files with each count; fails after 2 as long as the file `ill` is there."""
    for count in range(restored() + 1, 4):
        if count == 3 and os.path.exists(config["ill"]):
            raise ValueError("it is ill")
        with tune.checkpoint_dir() as directory:
            Path(directory, "count").write_text(str(count))
            for number in range(config["files"]):
                place = Path(directory, f"shard-{number // 500:03d}")
                place.mkdir(exist_ok=True)
                (place / f"{number:06d}").write_text(f"{count}:{number}")
        tune.report(count=count)


def many_files(place: Path, files: int) -> dict[str, float]:
    """Seconds: saved twice and copied; verified; fetched by another machine, saved and copied once more."""
    place.mkdir()
    (place / "ill").touch()
    settings = {
        "config": {"files": files, "ill": str(place / "ill")},
        "sync_config": tune.SyncConfig(upload_dir=str(place / "replica")),
        "keep_checkpoints_num": 1,
        "raise_on_failed_trial": False,
    }
    took, began = {}, time.monotonic()

    def lap(name: str) -> None:
        nonlocal began
        took[name] = time.monotonic() - began
        began = time.monotonic()

    (trial,) = run(saves_many, place / "first", **settings).trials
    lap("saved")
    assert trial.status == "ERROR" and iterations(trial) == [2]  # hashed
    assert main(["verify", str(place / "first" / "e")]) == 0
    lap("verified")
    (place / "ill").unlink()
    (trial,) = run(saves_many, place / "second", resume="AUTO+ERRORED", **settings).trials
    lap("continued")
    assert (trial.status, [row["count"] for row in rows(trial)]) == ("TERMINATED", [1, 2, 3]), trial.error
    assert iterations(trial) == [3]
    there = [path for path in (place / "replica").rglob("checkpoint_*/**/*") if path.is_file()]
    assert {path.parents[1].name for path in there if path.parent.name.startswith("shard-")} == {
        "checkpoint_000003-2.2"
    }
    assert len(there) == files + 2
    print(f"{files} files: {', '.join(f'{name} in {seconds:.1f} s' for name, seconds in took.items())}")
    return took


def test_a_checkpoint_of_2000_files_goes_all_its_ways(tmp_path: Path) -> None:
    many_files(tmp_path / "e", 2_000)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_checkpoint_of_20000_files_costs_no_more_than_its_number(tmp_path: Path) -> None:
    few, many = many_files(tmp_path / "few", 2_000), many_files(tmp_path / "many", 20_000)
    for name, seconds in many.items():  # the square of it would be 100 times
        assert seconds < 30 * max(few[name], 0.5), (name, few, many)


# --- trials at once -------------------------------------------------------------------------------------------


def saves_a_little(config: dict[str, Any]) -> None:
    """All are there before the first one goes on."""
    start = restored()
    meeting = Path(config["meeting"])
    (meeting / tune.get_trial_id()).touch()
    while len(os.listdir(meeting)) < config["all"]:
        time.sleep(0.05)
    for count in range(start + 1, 6):
        save(count)
        tune.report(count=count)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_200_trials_run_at_once(tmp_path: Path) -> None:
    (tmp_path / "meeting").mkdir()
    began = time.monotonic()
    trials = run(
        saves_a_little,
        tmp_path,
        config={"meeting": str(tmp_path / "meeting"), "all": 200},
        num_samples=200,
        resources_per_trial={"cpu": 1},
        max_concurrent_trials=200,
        executor=LocalExecutor(cpus=200),
        keep_checkpoints_num=1,
    ).trials
    assert {(trial.status, trial.iteration, trial.attempt) for trial in trials} == {("TERMINATED", 5, 1)}
    assert all(iterations(trial) == [5] for trial in trials)
    print(f"200 trials at once: {time.monotonic() - began:.1f} s")
