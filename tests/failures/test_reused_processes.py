"""`reuse_actors=True` in whole runs: setups are counted, results are those of fresh processes."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from lifecycle_scripts import Stage, iterations

import tuner as tune
from tests.failures.checkpoint_faults import run
from tests.failures.test_population import population
from trainables.store import publish
from tuner.executors import LocalExecutor
from tuner.schedulers import ASHAScheduler


def slots(**more: Any) -> dict[str, Any]:
    return {"executor": LocalExecutor(cpus=2), **more}


class Loads(tune.Trainable):
    """What it has learned is a list of who trained it; what it has loaded is there once for each process."""

    def setup(self, config: dict[str, Any]) -> None:
        with open(config["log"], "a") as file:
            file.write(f"setup {os.getpid()}\n")
        self.loaded = True
        self.begin(config)

    def begin(self, config: dict[str, Any]) -> None:
        self.rate, self.history = config.get("rate", 0.0), []

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        assert self.config == new_config
        self.begin(new_config)
        return self.loaded

    def step(self) -> dict[str, Any]:
        self.history.append([self.trial_id, self.iteration])
        teachers = len({trial_id for trial_id, _ in self.history})
        length = len(self.history)
        return {"score": self.rate * length, "length": length, "teachers": teachers, "draw": random.random()}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "history").write_text(json.dumps(self.history))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        assert self.history == []
        self.history = json.loads(Path(checkpoint_dir, "history").read_text())

    def cleanup(self) -> None:
        with open(self.config["log"], "a") as file:
            file.write(f"cleanup {os.getpid()}\n")


def called(log: Path) -> Counter[str]:
    return Counter(line.split()[0] for line in log.read_text().splitlines())


def draws(analysis: tune.ExperimentAnalysis) -> list[list[tuple[int, float]]]:
    return [[(row["length"], row["draw"]) for row in rows_of(trial)] for trial in analysis.trials]


def rows_of(trial: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(trial.path) / "result.json").read_text().splitlines()]


@pytest.mark.parametrize("executor", ["local", "inline"])
def test_twenty_trials_on_two_slots_load_their_data_twice(tmp_path: Path, executor: str) -> None:
    log = tmp_path / "log"
    settings = {"config": {"log": str(log), "rate": tune.uniform(0, 1)}, "num_samples": 20, "seed": 3}
    settings |= {"stop": {"training_iteration": 2}}
    where = {"executor": "inline"} if executor == "inline" else slots()
    reused = run(Loads, tmp_path, "reused", reuse_actors=True, **settings, **where)
    slots_used = 1 if executor == "inline" else 2
    assert called(log) == {"setup": slots_used, "cleanup": slots_used}
    assert [iterations(trial) for trial in reused.trials] == [[1, 2]] * 20
    if executor == "local":
        fresh = run(Loads, tmp_path, "fresh", **settings, **slots())
        assert draws(reused) == draws(fresh)
        assert called(log)["setup"] == 22


def test_clones_and_paused_trials_go_on_from_checkpoints_in_processes_that_are_there(tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = {"log": str(log), "rate": tune.uniform(0, 1)}
    settings = {"config": config, "num_samples": 6, "stop": {"training_iteration": 12}, "metric": "score", "seed": 1}
    for name, scheduler in (
        ("population", population(3, synch=True)),
        ("halving", ASHAScheduler(grace_period=2, max_t=12, reduction_factor=2)),
    ):
        log.write_text("")
        done = run(Loads, tmp_path, name, scheduler=scheduler, mode="max", reuse_actors=True, **settings, **slots())
        assert called(log) == {"setup": 2, "cleanup": 2}
        assert all(trial.status == "TERMINATED" for trial in done.trials)
        for trial in done.trials:
            numbers = iterations(trial)
            assert numbers == list(range(1, len(numbers) + 1))
        clones = [trial for trial in done.trials if trial.last_result["teachers"] > 1]
        assert bool(clones) == (name == "population")


def test_what_is_told_of_who_asks_in_vain(tmp_path: Path) -> None:
    class Plain(Loads):
        reset_config = tune.Trainable.reset_config

    def function(config: dict[str, Any]) -> None:
        tune.report(pid=os.getpid())

    log = tmp_path / "log"
    stop = {"config": {"log": str(log)}, "stop": {"training_iteration": 1}, "num_samples": 2}
    with pytest.warns(UserWarning, match=r"reuse_actors=True has no effect: Plain has no method reset_config"):
        run(Plain, tmp_path, "class", reuse_actors=True, **stop)
    assert called(log)["setup"] == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = run(function, tmp_path, "function", reuse_actors=True, num_samples=2)
        run(Plain, tmp_path, "nobody_asks", reuse_actors=None, **stop)
    assert len({trial.last_result["pid"] for trial in done.trials}) == 2
    with pytest.raises(tune.TuneError, match="reuse_actors='yes'.*accepted"):
        run(Loads, tmp_path, "wrong", reuse_actors="yes", **stop)


def test_one_that_nobody_needs_any_more_ends_before_the_run_does(tmp_path: Path) -> None:
    """The last trial trains for as long as the process beside it has not given back what it had."""
    log = tmp_path / "log"

    class Waits(Loads):
        def step(self) -> dict[str, Any]:
            return {"done": self.config["i"] < 2 or called(log)["cleanup"] == 1}

    grid = {"log": str(log), "i": tune.grid_search([0, 1, 2])}
    run(Waits, tmp_path, reuse_actors=True, config=grid, stop={"training_iteration": 100_000}, **slots())
    assert called(log) == {"setup": 2, "cleanup": 2}


class FailsLate(Loads):
    """The disk refuses the save of the first trial's end, behind the training."""

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        commit = publish.commit
        if self.config["i"] == 0:

            def refuse(*_: Any) -> None:
                publish.commit = commit
                raise OSError(errno.EIO, "Input/output error")

            publish.commit = refuse
        super().save_checkpoint(checkpoint_dir)


def test_a_last_save_that_fails_late_is_that_trials_failure_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = {"log": str(log), "i": tune.grid_search([0, 1, 2])}
    done = run(
        FailsLate, tmp_path, config=config, stop={"training_iteration": 2}, checkpoint_at_end=True, reuse_actors=True,
        max_concurrent_trials=1, raise_on_failed_trial=False,
    )  # fmt: skip
    assert [trial.status for trial in done.trials] == ["ERROR", "TERMINATED", "TERMINATED"]
    assert done.trials[0].error.type == "PublishError"
    assert [len(trial.checkpoints) for trial in done.trials] == [0, 1, 1]
    assert called(log)["setup"] == 1


KILLED = """
import os, sys, time
class Steps(tune.Trainable):
    def setup(self, config):
        tell("setup", os.getpid())
        self.n = 0
    def reset_config(self, new_config):
        self.n = 0
        return True
    def step(self):
        self.n += 1
        if self.config["i"] == 4 and self.n == 3:
            tell("waits")
            gate()
        return {"n": self.n}
    def save_checkpoint(self, path):
        open(path + "/n", "w").write(str(self.n))
    def load_checkpoint(self, path):
        self.n = int(open(path + "/n").read())
done = tune.run(
    Steps, name="e", storage_path=os.environ["RESULTS"], config={"i": tune.grid_search(list(range(8)))},
    stop={"training_iteration": 4}, checkpoint_freq=1, reuse_actors=True, max_concurrent_trials=1, resume="AUTO",
    verbose=0)
for trial in done.trials:
    rows = [line for line in open(os.path.join(trial.path, "result.json"))]
    print(trial.status, trial.last_result["n"], len(rows))
"""


def test_a_killed_run_is_continued_as_any_other(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.gate()
        stage.write(KILLED)
        script = stage.start()
        heard = script.hear("waits")
        assert [line.split()[0] for line in heard] == ["setup", "waits"]
        script.kill()
        stage.let(2)  # one that is about to die may still take the first
        assert stage.run().splitlines() == ["TERMINATED 4 4"] * 8
        assert [line.split()[0] for line in stage.unread()] == ["setup", "waits"]


def test_sigterm_saves_and_a_resume_goes_on(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.gate()
        stage.write(KILLED)
        script = stage.start()
        script.hear("waits")
        script.send(signal.SIGTERM)
        stage.let(1)
        assert script.wait() == 143
        assert stage.run().splitlines()[-8:] == ["TERMINATED 4 4"] * 8
