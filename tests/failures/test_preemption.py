"""Preemptions of function trainables by SIGUSR1, and those that `tune.preemption` sees: F36."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lifecycle_scripts import Stage, iterations, kept

import tuner as tune
from trainables.errors import TrainablesError
from tuner.error import TuneError

SCRIPT = """
import os
from tuner import preemption
from trainables.wire import Halt
from tuner.executors import LocalExecutor

class Watched(LocalExecutor):
    def tell(self, trial_id, message):
        super().tell(trial_id, message)
        if isinstance(message, Halt):
            tell("halt")

class Counter(tune.Trainable):
    def setup(self, config):
        self.n = 0
        tell("begins", self.n, os.getpid())
    def step(self):
        tell("step", self.n + 1)
        gate()
        self.n += 1
        return {"n": self.n}
    def save_checkpoint(self, directory):
        return {"n": self.n}
    def load_checkpoint(self, state):
        self.n = state["n"]
        tell("continues", self.n)

def train(config):
    n, checkpoint = 0, tune.get_checkpoint()
    if checkpoint is not None:
        n = checkpoint.to_dict()["n"]
        tell("continues", n)
    else:
        tell("begins", n, os.getpid())
    while n < 6:
        tell("step", n + 1)
        gate()
        n += 1
        stop = tune.get_context().should_stop()
        tune.report({"n": n}, checkpoint=tune.Checkpoint.from_dict({"n": n}) if stop else None)
        if stop:
            return

def detect_instance_preemption():
    return os.path.exists("notice")

how = os.environ["HOW"]
seen = {
    "file": lambda: [preemption.watch_file("notice", every_s=0.05)],
    "function": lambda: [preemption.watch(detect_instance_preemption, every_s=0.05)],
    "signal": lambda: [],
}[how]()
analysis = tune.run(
    train if os.environ["KIND"] == "function" else Counter, name="e", storage_path=os.environ["RESULTS"],
    resume="AUTO", stop={"training_iteration": 6}, callbacks=seen, executor=Watched(),
)
print("RETURNED", [trial.status for trial in analysis.trials])
"""


@pytest.fixture
def stage(tmp_path):
    with Stage(tmp_path) as stage:
        stage.gate()
        stage.write(SCRIPT)
        yield stage


def the_trial(stage: Stage):
    (trial,) = tune.ExperimentAnalysis(stage.results / "e").trials
    return trial


@pytest.mark.parametrize(
    ("how", "kind"), [("file", "function"), ("file", "class"), ("function", "class"), ("signal", "function")]
)
def test_f36_what_says_that_the_machine_goes_lets_trials_save_and_the_next_start_loses_nothing(stage, how, kind):
    notice = stage.place / "notice"
    if how == "file":
        notice.touch()  # left behind by the last preemption: it does not count
        os.utime(notice, ns=(1, 1))
    stage.let(2)
    script = stage.start(HOW=how, KIND=kind)
    script.hear("step 3")
    if how == "signal":
        script.send(signal.SIGUSR1)
    else:
        notice.write_text("soon")
    script.hear("halt")
    stage.let(1)
    assert script.wait() == 143, script.output
    assert "RETURNED" not in script.output and "resume=" in script.output
    assert ("notice says" in script.output) == (how == "file")
    assert ("detect_instance_preemption() says" in script.output) == (how == "function")
    trial = the_trial(stage)
    assert (trial.status, trial.iteration, kept(trial)) == ("PAUSED", 3, ["checkpoint_000003"])
    if how == "function":
        notice.unlink()  # another machine
    stage.let(9)
    again = stage.start(HOW=how, KIND=kind)
    again.hear("continues 3")
    assert "RETURNED ['TERMINATED']" in again.ends_well()
    trial = the_trial(stage)
    assert (trial.num_failures, trial.num_lost, trial.attempt, iterations(trial)) == (0, 0, 2, [1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_f36_a_signal_to_one_function_trial_that_looks_saves_it_and_the_run_continues_it(stage, number):
    stage.let(2)
    script = stage.start(HOW="signal", KIND="function")
    heard = script.hear("step 3")
    (pid,) = [int(line.split()[2]) for line in heard if line.startswith("begins")]
    os.kill(pid, number)
    stage.let(9)
    script.hear("continues 3")
    assert "RETURNED ['TERMINATED']" in script.ends_well()
    trial = the_trial(stage)
    assert (trial.num_failures, trial.num_lost, trial.attempt, iterations(trial)) == (0, 0, 2, [1, 2, 3, 4, 5, 6])


def test_f36_a_function_that_fails_is_said_once_and_asked_again(tmp_path, caplog):
    """The run goes on meanwhile; a second run with the same callback begins anew."""
    asked, often = [], threading.Event()

    def detect():
        asked.append(1)
        if len(asked) >= 3:
            often.set()
        raise OSError("no metadata")

    watching = tune.preemption.watch(detect, every_s=0.001)

    def train(config):
        assert often.wait(60)
        asked.clear()
        often.clear()
        tune.report({"x": 1})

    for name in ("a", "b"):
        tune.run(train, name=name, storage_path=tmp_path, executor="inline", callbacks=[watching], verbose=0)
    said = [record for record in caplog.records if "detect() failed" in record.getMessage()]
    assert len(said) == 2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tune.preemption.watch("notice"), "'notice' is not accepted"),
        (lambda: tune.preemption.watch(bool, every_s=0), "every_s=0 is not accepted"),
        (lambda: tune.preemption.watch_file(3), "3 is not accepted"),
        (lambda: tune.preemption.watch_file("x", every_s=-1), "every_s=-1 is not accepted"),
    ],
)
def test_f36_settings_that_are_not_accepted_are_named(make, words):
    with pytest.raises((TuneError, TrainablesError), match=words):
        make()
