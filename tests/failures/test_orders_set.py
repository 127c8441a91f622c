"""`tuner set` on real runs: on the command line and in Python, over a kill, and as the last trial ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lifecycle_scripts import Stage

import tuner as tune
from tuner.cli import main
from tuner.orders.giving import GivenOrder

SCRIPT = """
import os, sys, time

class Counts(tune.Trainable):
    def setup(self, config):
        self.count = 0
        tell("up", self.trial_id, tune.get_context().get_trial_resources().required_resources["CPU"])
    def step(self):
        time.sleep(0.02)
        self.count += 1
        return {"score": self.count, "done": os.path.exists("enough")}
    def save_checkpoint(self, directory):
        with open(os.path.join(directory, "state"), "w") as file:
            file.write(str(self.count))
    def load_checkpoint(self, directory):
        with open(os.path.join(directory, "state")) as file:
            self.count = int(file.read())

if __name__ == "__main__":
    analysis = tune.run(
        Counts,
        name="e",
        storage_path=os.environ["RESULTS"],
        config={"rate": tune.grid_search([1, 2])},
        num_samples=int(sys.argv[1]),
        max_concurrent_trials=1,
        resume="AUTO",
        verbose=1,
        resources_per_trial={"cpu": 0.25},
        chdir_to_trial_dir=False,
        keep_checkpoints_num=1,
    )
    for trial in analysis.trials:
        print("TRIAL", trial.index, trial.status, trial.resources, trial.iteration == trial.last_result["score"])
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as stage:
        stage.write(SCRIPT)
        yield stage


def told(capsys: Any, *words: str) -> tuple[int, list[dict[str, str]]]:
    """What a verb answers, one object after another."""
    capsys.readouterr()
    status = main(["set", *words, "--json"])
    decoder, rest, found = json.JSONDecoder(), capsys.readouterr().out.strip(), []
    while rest:
        one, end = decoder.raw_decode(rest)
        found.append(one)
        rest = rest[end:].strip()
    return status, found


def test_a_run_and_a_trial_are_changed_and_it_stays_so_over_a_kill(stage: Stage, capsys: Any) -> None:
    root = str(stage.results / "e")
    script = stage.start("script.py", "1")
    script.hear("up")
    status, answers = told(capsys, root, "num_samples=2", "max_concurrent=3", "--wait", "30")
    assert status == 0 and [answer["state"] for answer in answers] == ["done"] * 2
    assert answers[0]["why"] == "num_samples=2, was 1; 4 trials in all"
    script.hear("up", 2)
    assert told(capsys, root, "--trial", "1", "cpu=0.5", "--wait", "30") == (
        0,
        [{"id": told_id(root), "state": "done", "why": "it gets cpu=0.5"}],
    )
    assert told(capsys, root, "--trial", "0", "cpu=1e6")[1][0]["why"].startswith(
        "a trial asks for 1e+06 cpu, available"
    )
    assert main(["show", root]) == 0
    shown = capsys.readouterr().out
    assert "set: num_samples=2 (the script says 1), max_concurrent=3 (the script says 1)" in " ".join(shown.split())
    assert "of 4 trials" in shown
    changed = tune.open_experiment(root).settings_changed
    assert {name: (one["value"], one["was"]) for name, one in changed.items()} == {
        "num_samples": (2, 1),
        "max_concurrent": (3, 1),
    }
    script.kill()
    (stage.place / "enough").touch()
    printed = stage.run("script.py", "1")
    assert "num_samples=2 holds, as `tuner set` said; the script says 1, as then" in printed
    lines = [line.split(" ", 2) for line in printed.splitlines() if line.startswith("TRIAL")]
    assert [line[2] for line in lines] == [
        "TERMINATED None True",
        "TERMINATED {'cpu': 0.5} True",
        "TERMINATED None True",
        "TERMINATED None True",
    ]
    printed = stage.run("script.py", "3")  # the newer word, for good
    assert "num_samples=3 holds, which the script says now: that is newer than 2" in printed
    assert printed.count("TRIAL") == 6 and "num_samples=" not in stage.run("script.py", "3")
    assert main(["log", root]) == 0
    history = capsys.readouterr().out
    assert "you: set num_samples=2" in history and "num_samples=3, as the script says now" in history


def told_id(root: str) -> str:
    return list(tune.open_experiment(root).orders)[-1]


class OrdersAtTheEnd(tune.Callback):
    """Orders something when a trial has ended, which may be the last one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.given: list[GivenOrder] = []

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        experiment = tune.open_experiment(self.root)
        if trial.index == 0:
            self.given.append(experiment.set("num_samples", 2))
        elif trial.index == 1:
            self.given += [experiment.set("max_concurrent", 2), experiment.set("num_samples", 3)]


def test_what_is_ordered_as_the_last_trial_ends_is_done(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"x": config["x"]})

    orders = OrdersAtTheEnd(tmp_path / "e")
    settings: dict[str, Any] = {"name": "e", "storage_path": tmp_path, "executor": "inline", "verbose": 0}
    analysis = tune.run(train, config={"x": tune.uniform(0, 1)}, callbacks=[orders], **settings)
    assert len(analysis.trials) == 3
    assert [order.state for order in orders.given] == ["done", "refused", "done"]
    assert "this executor runs 1 at a time" in orders.given[1].why
    again = tune.open_experiment(tmp_path / "e").set("num_samples", 4, if_dead="wait")
    assert len(tune.run(train, config={"x": tune.uniform(0, 1)}, resume="AUTO", **settings).trials) == 4
    assert again.state == "done"
