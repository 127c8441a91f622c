"""`tuner log`: what has happened, as people read it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tuner as tune
from trainables.wire import CheckpointRef
from tuner.cli import main, output
from tuner.cli.log import LEAST, broken
from tuner.clock import SystemClock
from tuner.experiment import events as ev
from tuner.experiment.generations import read_records
from tuner.experiment.journal import JournalWriter, read_journal
from tuner.experiment.paths import ExperimentPaths


class Learns(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.score = 0.0

    def step(self) -> dict[str, Any]:
        if self.config["rate"] == 3:
            raise ValueError("three is\ntoo much")
        self.score += self.config["rate"]
        return {"score": self.score}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "score").write_text(str(self.score))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        self.score = float(Path(checkpoint_dir, "score").read_text())


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("storage")
    tune.run(
        Learns,
        name="e",
        storage_path=storage,
        executor="inline",
        config={"rate": tune.grid_search([1, 2, 3])},
        metric="score",
        mode="max",
        stop={"training_iteration": 6},
        verbose=0,
        max_failures=1,
        raise_on_failed_trial=False,
    )
    tell(ExperimentPaths(storage / "e"))
    return storage / "e"


def tell(paths: ExperimentPaths) -> None:
    """Facts that this run had no reason to write."""
    contents = read_journal(paths)
    after: dict[str, Any] = {"next_seq": contents.last_seq + 1, "parents": contents.chain, "clock": SystemClock()}
    writer = JournalWriter(paths, contents.generation, sync="inline", **after)
    one, two = tune.ExperimentAnalysis(paths.root).trials[:2]
    order = msgspec.Raw(b'{"order": "note", "trial": "0", "text": "flat"}')
    ref = CheckpointRef(two.trial_id, "checkpoint_000002", 1, 1, 1, 2)
    for fact in (
        ev.Exploited(one.trial_id, ref, msgspec.Raw(b'{"rate": 2}'), 2),
        ev.OrderTaken("some-order", order, 1e9),
        ev.TrialNoted(one.trial_id, "flat", 1e9, "some-order"),
        ev.OrderTaken("other-order", msgspec.Raw(b"null"), 1e9),
        ev.OrderAnswered("other-order", 1e9, False, "no JSON"),
    ):
        writer.append(ev.encode(fact))
    writer.close()


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["log", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  |-  ", line) for line in lines)
    return [line.partition("  ")[2] for line in lines]


def test_drivers_trials_exploits_failures_and_ends(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, str(experiment))
    assert lines[0] == "driver 1 began" and "the driver ended: finished" in lines
    assert any(re.fullmatch(r"trial 0 \(\w+_00000\) created: rate=1", line) for line in lines)
    donor = tune.ExperimentAnalysis(experiment).trials[1].trial_id
    assert lines[-5:] == [
        f"trial 0 goes on at 2 as a clone of trial 1@2 ({donor}): rate: 1 -> 2",
        "you: note trial 0",
        "trial 0, note: flat",
        "you: an order that is none",
        "an order that is none: refused, no JSON",
    ]
    assert "trial 2: attempt 1 failed: ValueError: three is" in lines
    assert "trial 2 failed: ValueError" in lines
    assert [line for line in lines if line.startswith("trial 2") and "too much" in line] == []


def test_a_driver_began_when_it_took_the_experiment(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = read_records(ExperimentPaths(experiment))[0]
    assert main(["log", str(experiment)]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == f"{output.time(record.since)}  driver 1 began"
    assert second.startswith(output.time(record.since)[:10])  # a trial's creation tells no time


def test_of_one_trial_only_what_is_about_it(experiment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, str(experiment), "2")
    assert lines and all(line.startswith("trial 2") for line in lines)
    assert main(["log", str(experiment), "7"]) == 2
    assert "there are 3, numbered from 0" in capsys.readouterr().err


@given(st.text("ab -.:>", max_size=200), st.integers(30, 120))
def test_in_a_terminal_what_does_not_fit_stands_behind_the_time(told: str, width: int) -> None:
    lines = broken(f"2026-01-01 00:00:00  {told}", width).split("\n")
    assert lines[0].startswith("2026-01-01 00:00:00  ") and all(line.startswith(" " * 21) for line in lines[1:])
    assert all(len(line) <= max(width, 21 + LEAST) for line in lines)
    assert "".join(line[21:] for line in lines).replace(" ", "") == told.replace(" ", "")
