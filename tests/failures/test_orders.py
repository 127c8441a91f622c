"""Orders to real runs: by the command line and in Python, with the driver killed in between, and beside schedulers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lifecycle_scripts import Script, Stage

import tuner as tune
from tuner.cli import main
from tuner.error import OrderError
from tuner.orders.giving import give

SCRIPT = """
import os, sys, time
from tuner.schedulers import FIFOScheduler, HyperBandScheduler, PopulationBasedTraining

class Counts(tune.Trainable):
    def setup(self, config):
        self.count, self.sum = 0, 0.0
        tell("up", self.trial_id)
    def step(self):
        time.sleep(0.03)
        self.count += 1
        self.sum = self.sum * 0.9 + self.config["rate"]
        if self.config["rate"] == 2 and not os.path.exists("mended"):
            raise ValueError("not mended yet")
        if self.count == 2:
            tell("two", self.trial_id)
        return {"score": self.sum, "done": self.count >= 10 and os.path.exists("enough")}
    def save_checkpoint(self, directory):
        with open(os.path.join(directory, "state"), "w") as file:
            file.write(f"{self.count} {self.sum!r}")
    def load_checkpoint(self, directory):
        with open(os.path.join(directory, "state")) as file:
            count, total = file.read().split()
        self.count, self.sum = int(count), float(total)
        tell("loaded", self.trial_id, self.count)

SCHEDULERS = {
    "fifo": lambda: FIFOScheduler(),
    "hyperband": lambda: HyperBandScheduler(max_t=729),
    "pbt": lambda: PopulationBasedTraining(perturbation_interval=5, hyperparam_mutations={"rate": [1, 3, 5]}),
}

if __name__ == "__main__":
    analysis = tune.run(
        Counts,
        name="e",
        storage_path=os.environ["RESULTS"],
        config={"rate": tune.grid_search([1, 2, 3])},
        resume="AUTO",
        metric="score",
        mode="max",
        verbose=1,
        resources_per_trial={"cpu": 0.25},
        chdir_to_trial_dir=False,
        scheduler=SCHEDULERS[sys.argv[1]](),
        raise_on_failed_trial=False,
        checkpoint_freq=1,
        keep_checkpoints_num=2,
    )
    for trial in analysis.trials:
        print("TRIAL", trial.index, trial.status, trial.held, trial.end_reason, trial.iteration)
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as stage:
        stage.write(SCRIPT)
        yield stage


def started(stage: Stage, scheduler: str = "fifo") -> Script:
    script = stage.start("script.py", scheduler)
    script.hear("two", 2)
    return script


def ordered(stage: Stage, *words: str, capsys: Any = None) -> tuple[str, str]:
    """Give an order on the command line, wait for it; returns the answer's state and why."""
    main([words[0], str(stage.results / "e"), *words[1:], "--wait", "30", "--json"])
    said = json.loads(capsys.readouterr().out)
    return said["state"], said["why"]


def test_a_pause_outlives_two_drivers_and_goes_on_bit_for_bit(stage: Stage, capsys: Any) -> None:
    script = started(stage)
    assert main(["pause", str(stage.results / "e"), "0", "--wait", "0"]) == 1, "it is not done"
    capsys.readouterr()
    state, why = ordered(stage, "pause", "0", capsys=capsys)
    assert state == "done"
    paused_at = int(why.split()[-1])
    assert ordered(stage, "note", "0", "looks", "flat", capsys=capsys)[0] == "done"
    script.kill()
    second = stage.start("script.py", "fifo")
    heard = second.hear("loaded")  # of the others, one has failed
    assert not any(line.startswith("loaded") and line.split()[1].endswith("00000") for line in heard)
    second.kill()
    (stage.place / "enough").touch()
    printed = stage.run("script.py", "fifo")  # the others end; it waits still, and the run ends without it
    assert f"TRIAL 0 PAUSED True None {paused_at}" in printed
    assert "1 trial waits for you (trial 0)" in printed
    assert "1 waits for your `tuner go`" in stage.run("script.py", "fifo")
    order = give(stage.results / "e", {"order": "go", "trial": "0"}, if_dead="wait")
    assert main(["show", str(stage.results / "e")]) == 0
    assert "ordered: go 0 (waits for a driver)" in capsys.readouterr().out
    stage.unread()
    printed = stage.run("script.py", "fifo")
    assert any(line.endswith(f"00000 {paused_at}") for line in stage.unread() if line.startswith("loaded"))
    assert "TRIAL 0 TERMINATED False returned" in printed and order.state == "done"
    trial = tune.ExperimentAnalysis(str(stage.results / "e")).trials[0]
    total = 0.0
    for _ in range(trial.iteration):
        total = total * 0.9 + 1
    assert trial.last_result["score"] == total
    assert main(["show", str(stage.results / "e"), "0"]) == 0
    assert "looks flat" in capsys.readouterr().out


def test_a_failed_trial_is_tried_again_while_others_run_and_one_is_stopped(stage: Stage, capsys: Any) -> None:
    script = started(stage)
    (stage.place / "mended").touch()
    (stage.place / "script.py").touch()
    state, why = ordered(stage, "retry", "1", capsys=capsys)
    assert state == "done" and "script.py was edited since this driver began" in why
    script.hear("two", 1)
    saved = ordered(stage, "save", "1", "--pin", capsys=capsys)[1]
    assert ordered(stage, "tag", f"1@{int(saved[11:17])}", "good", capsys=capsys) == ("done", saved)
    assert ordered(stage, "stop", "2", capsys=capsys)[1].startswith("stopped by you at ")
    assert ordered(stage, "stop", "nope", capsys=capsys) == (
        "refused",
        "there is no trial 'nope'; there are 3, by id, name or number from 0",
    )
    assert ordered(stage, "stop", "all", capsys=capsys)[0] == "done"
    printed = script.ends_well()
    trial = tune.ExperimentAnalysis(str(stage.results / "e")).trials[1]
    assert Path(trial.path, saved).is_dir() and [r.tags for r in trial.checkpoints if r.pinned] == [["good"]]
    assert main(["show", str(stage.results / "e"), "1", "--why"]) == 0
    assert "pinned, good" in capsys.readouterr().out
    assert all("stopped by you at" in line for line in printed.splitlines() if line.startswith("TRIAL"))


@pytest.mark.parametrize("scheduler", ["hyperband", "pbt"])
def test_beside_schedulers_that_compare_all_trials(stage: Stage, scheduler: str, capsys: Any) -> None:
    (stage.place / "mended").touch()
    script = started(stage, scheduler)
    assert ordered(stage, "pause", "0", capsys=capsys)[0] == "done"
    assert ordered(stage, "go", "0", capsys=capsys)[0] == "done"
    assert ordered(stage, "stop", "2", capsys=capsys)[0] == "done"
    script.kill()
    (stage.place / "enough").touch()
    printed = stage.run("script.py", scheduler)
    assert "TRIAL 0 TERMINATED False" in printed and "stopped by you" in printed


def test_in_python_it_is_read_and_steered(stage: Stage) -> None:
    script = started(stage)
    experiment = tune.open_experiment(stage.results / "e")
    assert experiment.driver.startswith(f"running (pid {script.process.pid} on ")
    trial = experiment.trials[0]
    orders = [experiment.note(trial, "by hand"), experiment.save(trial, pin=True), experiment.pause(trial)]
    assert [order.wait(30) for order in orders] == ["done"] * 3
    assert experiment.order({"order": "go", "trial": trial.trial_id}, order_id="go-on-please").wait(30) == "done"
    assert experiment.pause(2, order_id="go-on-please").state == "done"  # the first order with that id stands
    now = experiment.refreshed()
    assert [note.text for note in now.trials[0].notes] == ["by hand"] and experiment.trials[0].notes == []
    assert [record["order"]["order"] for record in now.orders.values()] == [
        "note",
        "save",
        "pause",
        "go",
    ]
    changes = list(now.changes())
    assert [change["n"] for change in changes] == list(range(1, len(changes) + 1))
    taken = next(change["n"] for change in changes if change["kind"] == "order_taken")
    later = list(now.changes(since=taken))
    assert later[: len(changes) - taken] == changes[taken:] and later[0]["kind"] == "noted"
    script.kill()
    assert experiment.driver.startswith("killed")
    with pytest.raises(OrderError, match="no driver runs"):
        experiment.stop("all")
    waits = experiment.stop("all", if_dead="wait")
    stage.run("script.py", "fifo")
    assert waits.state == "done" and {trial.status for trial in now.refreshed().trials} == {"TERMINATED", "ERROR"}


def test_trials_that_run_in_the_drivers_own_process_are_steered_too(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        for count in range(3):
            tune.report({"count": count})

    settings: dict[str, Any] = {"name": "e", "storage_path": tmp_path, "executor": "inline", "verbose": 0}
    tune.run(train, num_samples=2, **settings)
    order = tune.open_experiment(tmp_path / "e").note(0, "again", if_dead="wait")
    analysis = tune.run(train, num_samples=3, resume="AUTO", **settings)
    assert order.state == "done" and [note.text for note in analysis.trials[0].notes] == ["again"]


def test_a_hundred_at_once_and_a_dead_driver(stage: Stage) -> None:
    script = started(stage)
    root = stage.results / "e"
    orders = [give(root, {"order": "note", "trial": str(n % 3), "text": f"note {n}"}) for n in range(100)]
    script.kill()
    assert {order.wait(0.0) for order in orders} <= {"waiting", "taken", "done"}
    (stage.place / "enough").touch()
    stage.run("script.py", "fifo")
    assert [order.state for order in orders] == ["done"] * 100
    trials = tune.ExperimentAnalysis(str(root)).trials
    assert sorted(note.text for trial in trials for note in trial.notes) == sorted(f"note {n}" for n in range(100))
