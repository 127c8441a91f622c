"""Runs that end early: preempted, Ctrl-C, a spent budget, the first failure, an error of the driver.

F24, F36, F37, D17; design.md section 6, "the experiment ends early".
"""

from __future__ import annotations

import asyncio
import os
import pty
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lifecycle_scripts import Script, Stage, iterations, kept

import tuner as tune
from trainables.store import verify
from tuner.error import SyncError, TrialsFailedError
from tuner.experiment.outcome import ended_because
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.reader import load_state
from tuner.schedulers import ASHAScheduler

WATCHED = """
from trainables.wire import Halt
from tuner.executors import LocalExecutor

class Watched(LocalExecutor):
    def tell(self, trial_id, message):
        super().tell(trial_id, message)
        if isinstance(message, Halt):
            tell("halt")

"""

COUNTER = (
    WATCHED
    + """
import json, os, signal

class Saves(tune.Callback):
    def on_checkpoint(self, iteration, trials, trial, checkpoint, **info):
        if "PRINTS" in os.environ:
            print("a checkpoint", flush=True)
        tell("saved", trial.config["i"], trial.checkpoints[-1].iteration)
    def on_trial_result(self, iteration, trials, trial, result, **info):
        if os.environ.get("HOW") == "exception" and result["i"] == 2 and result["n"] == 3:
            raise RuntimeError("the driver's own mistake")

class Counter(tune.Trainable):
    def setup(self, config):
        self.i, self.n = config["i"], 0
        tell("setup", self.i, os.getpid())
    def step(self):
        tell("step", self.i, self.n + 1)
        gate(f"gate{self.i}")
        self.n += 1
        if self.i == 1 and self.n == 3 and "MENDED" not in os.environ:
            raise ValueError("trial 1 is ill")
        return {"i": self.i, "n": self.n}
    def save_checkpoint(self, directory):
        return {"n": self.n}
    def load_checkpoint(self, checkpoint):
        self.n = checkpoint["n"]
        tell("loaded", self.i, self.n)

mine = lambda number, frame: None
signal.signal(signal.SIGINT, mine)
order = json.loads(os.environ["ORDER"])
analysis = tune.run(
    Counter,
    name="e",
    config={"i": tune.grid_search(order)},
    stop={"training_iteration": 4},
    storage_path=os.environ["RESULTS"],
    resources_per_trial={"cpu": 0.5},
    resume=os.environ.get("RESUME", "AUTO"),
    callbacks=[Saves()],
    executor=Watched(),
    raise_on_failed_trial=False,
    checkpoint_freq=int(os.environ.get("FREQ", 0)),
    **json.loads(os.environ.get("MORE", "{}")),
)
print("HANDLER", signal.getsignal(signal.SIGINT) is mine)
print("RETURNED", [trial.status for trial in analysis.trials])
"""
)


def stage_of(tmp_path, script=COUNTER):
    stage = Stage(tmp_path)
    stage.gate("gate0", "gate1", "gate2", "gate3")
    stage.write(script)
    return stage


def trials_of(stage: Stage):
    return {trial.config["i"]: trial for trial in tune.ExperimentAnalysis(stage.results / "e").trials}


def until_step(script: Script, i: int, n: int, *, saved: int | None = None) -> None:
    """Let trial i go on until it is in its n-th step, which does not end, and the checkpoint of a step is recorded."""
    script.stage.let(n - 1, f"gate{i}")
    wanted = {f"step {i} {n}"} | ({f"saved {i} {saved}"} if saved else set())
    while wanted:
        wanted -= set(script.hear(""))


def driver_heard(script: Script, number: int, *, group: bool = False) -> None:
    """Send a signal, and wait until the driver has told the first trial."""
    (script.send_to_all if group else script.send)(number)
    script.hear("halt")


# --- preemption -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "status", "ended"),
    [
        (signal.SIGTERM, 143, "preempted"),
        (signal.SIGUSR1, 143, "preempted"),
        (signal.SIGHUP, 129, "hung_up"),
    ],
)
@pytest.mark.parametrize("group", [False, True])
def test_f36_a_signal_to_the_driver_saves_every_running_class_trial_and_a_resume_loses_nothing(
    tmp_path, number, status, ended, group
):
    with stage_of(tmp_path) as stage:
        script = stage.start(ORDER="[0, 2]")
        script.hear("step", 2)
        until_step(script, 0, 3)
        until_step(script, 2, 2)
        driver_heard(script, number, group=group)
        stage.let(1, "gate0")
        stage.let(1, "gate2")
        assert script.wait() == status, script.output
        assert "RETURNED" not in script.output and "resume=" in script.output
        assert load_state(ExperimentPaths(stage.results / "e")).run_ended == ended
        before = trials_of(stage)
        assert {i: (t.status, t.iteration, kept(t)) for i, t in before.items()} == {
            0: ("PAUSED", 3, ["checkpoint_000003"]),
            2: ("PAUSED", 2, ["checkpoint_000002"]),
        }
        again = stage.start(ORDER="[0, 2]")
        stage.let(9, "gate0")
        stage.let(9, "gate2")
        assert {"loaded 0 3", "loaded 2 2"} <= set(again.hear("loaded", 2))
        assert "RETURNED ['TERMINATED', 'TERMINATED']" in again.ends_well()
        for trial in trials_of(stage).values():
            assert iterations(trial) == [1, 2, 3, 4]
            assert (trial.num_failures, trial.num_lost, trial.attempt) == (0, 0, 2)


def test_f36_a_terminal_that_is_gone_ends_the_run_as_sigterm_does_though_a_callback_prints(tmp_path):
    ours, theirs = pty.openpty()
    with stage_of(tmp_path) as stage:
        script = stage.start(ORDER="[0]", PRINTS="1", terminal=theirs)
        os.close(theirs)
        until_step(script, 0, 3)
        os.close(ours)  # the kernel sends SIGHUP to the foreground group, and fails each write from now on
        script.hear("halt")
        stage.let(1, "gate0")
        assert script.wait() == 129
        trial = trials_of(stage)[0]
        assert (trial.status, trial.iteration, kept(trial)) == ("PAUSED", 3, ["checkpoint_000003"])
        assert trial.end_reason is None and "SIGHUP" in ended_because(trial)


def test_f36_under_nohup_a_run_ignores_sighup_and_so_do_its_trials(tmp_path):
    with stage_of(tmp_path) as stage:
        script = stage.start(ORDER="[0, 2]", nohup=True)
        pids = [int(line.split()[2]) for line in script.hear("setup", 2) if line.startswith("setup")]
        until_step(script, 0, 2)
        script.send_to_all(signal.SIGHUP)
        for pid in pids:
            os.kill(pid, signal.SIGHUP)
        stage.let(9, "gate0")
        stage.let(9, "gate2")
        assert "RETURNED ['TERMINATED', 'TERMINATED']" in script.ends_well()
        assert {trial.attempt for trial in trials_of(stage).values()} == {1}


def test_f36_sighup_to_every_process_of_a_run_lets_its_trials_save(tmp_path):
    """As systemd sends it to all of a login session."""
    with stage_of(tmp_path) as stage:
        script = stage.start(ORDER="[0]")
        (trial,) = [int(line.split()[2]) for line in script.hear("setup") if line.startswith("setup")]
        until_step(script, 0, 3)
        keeper = parent_of(trial)
        for pid in (trial, keeper, parent_of(keeper), script.process.pid):
            os.kill(pid, signal.SIGHUP)
        script.hear("halt")
        stage.let(1, "gate0")
        assert script.wait() == 129, script.output
        assert (trials_of(stage)[0].iteration, kept(trials_of(stage)[0])) == (3, ["checkpoint_000003"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_f36_a_signal_to_one_trial_saves_it_and_the_run_continues_it_without_counting_a_failure(tmp_path, number):
    with stage_of(tmp_path) as stage:
        script = stage.start(ORDER="[0, 2]")
        pids = {line.split()[1]: int(line.split()[2]) for line in script.hear("setup", 2) if "setup" in line}
        until_step(script, 0, 3)
        os.kill(pids["0"], number)
        stage.let(1, "gate0")
        script.hear("loaded 0 3")
        stage.let(9, "gate0")
        stage.let(9, "gate2")
        assert "RETURNED ['TERMINATED', 'TERMINATED']" in script.ends_well()
        after = trials_of(stage)
        assert {i: t.attempt for i, t in after.items()} == {0: 2, 2: 1}
        assert all(t.num_failures == 0 and iterations(t) == [1, 2, 3, 4] for t in after.values())


def test_f36_a_trial_that_does_not_leave_within_the_grace_time_keeps_its_latest_checkpoint(tmp_path):
    with stage_of(tmp_path) as stage:
        script = stage.start(ORDER="[0]", FREQ="1", TUNE_GRACE_S="0.5")
        until_step(script, 0, 3, saved=2)
        driver_heard(script, signal.SIGTERM)
        assert script.wait() == 143, script.output
        trial = trials_of(stage)[0]
        assert (trial.status, trial.iteration, trial.num_failures) == ("PAUSED", 2, 0)
        assert kept(trial)[-1] == "checkpoint_000002"


FUNCTION = (
    WATCHED
    + """
import os

def train(config):
    looks, every = os.environ["LOOKS"] == "1", int(os.environ["EVERY"])
    n, checkpoint = 0, tune.get_checkpoint()
    if checkpoint is not None:
        n = checkpoint.to_dict()["n"]
    tell("begins", n)
    save = lambda: tune.Checkpoint.from_dict({"n": n})
    try:
        while n < 6:
            tell("step", n + 1)
            gate()
            n += 1
            if looks and tune.get_context().should_stop():
                tune.report({"n": n}, checkpoint=save())
                tell("returns", n)
                return
            tune.report({"n": n}, checkpoint=save() if every and n % every == 0 else None)
    finally:
        tell("leaves", n)

analysis = tune.run(train, name="e", storage_path=os.environ["RESULTS"], resume="AUTO", executor=Watched())
print("RETURNED", [trial.status for trial in analysis.trials])
"""
)


@pytest.mark.parametrize(
    ("looks", "every", "steps", "last", "status", "goes_on_at"),
    [
        ("1", "0", 1, "returns 3", "PAUSED", 3),  # it looks: saves what it has, and returns by itself
        ("1", "3", 1, "returns 3", "PAUSED", 3),
        ("0", "2", 2, "leaves 4", "PAUSED", 4),  # it does not look: it ends with its next checkpoint
        ("0", "3", 1, "leaves 3", "PAUSED", 3),
        ("0", "0", 1, "leaves 3", "PENDING", 0),  # it never saves: nothing to wait for
    ],
)
@pytest.mark.parametrize(
    ("number", "status_of_script"),
    [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, -signal.SIGINT)],
)
def test_f36_functions_that_look_return_and_those_that_do_not_end_with_their_latest_checkpoint(
    tmp_path, number, status_of_script, looks, every, steps, last, status, goes_on_at
):
    with stage_of(tmp_path, FUNCTION) as stage:
        stage.gate()
        stage.let(2)
        script = stage.start(LOOKS=looks, EVERY=every)
        script.hear("step 3")
        driver_heard(script, number)
        stage.let(steps)
        script.hear(last)
        assert script.wait() == status_of_script, script.output
        assert "RETURNED" not in script.output
        (trial,) = tune.ExperimentAnalysis(stage.results / "e").trials
        assert (trial.status, trial.num_failures) == (status, 0)
        stage.let(9)
        again = stage.start(LOOKS=looks, EVERY=every)
        again.hear(f"begins {goes_on_at}")
        assert "RETURNED ['TERMINATED']" in again.ends_well()
        (trial,) = tune.ExperimentAnalysis(stage.results / "e").trials
        assert iterations(trial) == [1, 2, 3, 4, 5, 6]


def test_f36_one_function_trial_that_is_preempted_again_and_again_counts_no_failure(tmp_path):
    with stage_of(tmp_path, FUNCTION) as stage:
        stage.gate()
        script = stage.start(LOOKS="0", EVERY="1")
        for n in range(1, 4):
            script.hear(f"step {n}")
            (trial,) = tune.ExperimentAnalysis(stage.results / "e").trials
            # the newest attempt's process is the only one with this trial's directory as working directory
            os.kill(process_in(trial.path), signal.SIGTERM)
            stage.let(1)
            script.hear(f"begins {n}")
        stage.let(9)
        assert "RETURNED ['TERMINATED']" in script.ends_well()
        (trial,) = tune.ExperimentAnalysis(stage.results / "e").trials
        assert (trial.attempt, trial.num_failures, iterations(trial)) == (4, 0, [1, 2, 3, 4, 5, 6])


def process_in(directory):
    """The one process whose working directory that is."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.readlink(f"/proc/{name}/cwd") == os.path.realpath(directory):
                    return int(name)
            except OSError:
                continue
    raise AssertionError(f"no process works in {directory}")


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


# --- Ctrl-C -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [False, True])
def test_f37_ctrl_c_once_stops_in_order_and_leaves_the_trials_resumable(tmp_path, group):
    """Also from a terminal, which sends it to every process of the run. The script ends as Ctrl-C ends one."""
    with stage_of(tmp_path) as stage:
        script = stage.start(ORDER="[0, 2, 3]", MORE='{"max_concurrent_trials": 2}')
        script.hear("step", 2)
        until_step(script, 0, 3)
        driver_heard(script, signal.SIGINT, group=group)
        stage.let(1, "gate0")
        stage.let(1, "gate2")
        assert script.wait() == -signal.SIGINT, script.output
        stopping = "stopping: 2 trials save what they can (at most 5 s, TUNE_STOP_GRACE_S); Ctrl-C again stops now\n"
        assert stopping in script.output and "RETURNED" not in script.output and "Traceback" not in script.output
        assert script.output.splitlines()[-3:] == [
            "stopped by Ctrl-C: 0 of 3 trials had ended",
            "to continue: the same call with name='e' and resume=\"AUTO\"",
            "results so far: `except tune.Interrupted as stopped: stopped.analysis`",
        ]
        assert [trial.status for trial in trials_of(stage).values()] == ["PAUSED", "PAUSED"]
        for gate in ("gate0", "gate2", "gate3"):
            stage.let(9, gate)
        again = stage.start(ORDER="[0, 2, 3]")
        assert "RETURNED ['TERMINATED', 'TERMINATED', 'TERMINATED']" in again.ends_well()
        after = trials_of(stage)
        assert {i: t.attempt for i, t in after.items()} == {0: 2, 2: 2, 3: 1}
        assert all(iterations(t) == [1, 2, 3, 4] for t in after.values())


def test_f37_a_trial_that_hangs_is_ended_after_ctrl_c_within_ten_seconds(tmp_path):
    """Where it was wanted so, the run returns then."""
    with stage_of(tmp_path) as stage:
        script = stage.start(ORDER="[0]", FREQ="1", TUNE_ON_INTERRUPT="return", TUNE_STOP_GRACE_S="2")
        until_step(script, 0, 3, saved=2)
        began = time.monotonic()
        driver_heard(script, signal.SIGINT)
        output = script.ends_well()
        assert "RETURNED ['PAUSED']" in output and "HANDLER True" in output
        assert "at most 2 s" in output and "ended early (interrupted); to continue" in output
        assert time.monotonic() - began < 10
        trial = trials_of(stage)[0]
        assert (trial.iteration, trial.num_failures, kept(trial)[-1]) == (2, 0, "checkpoint_000002")


def test_f37_ctrl_c_twice_exits_at_once_and_the_state_is_whole(tmp_path):
    with stage_of(tmp_path) as stage:
        script = stage.start(ORDER="[0, 2]", FREQ="1", TUNE_STOP_GRACE_S="600")
        pids = [int(line.split()[2]) for line in script.hear("setup", 2) if line.startswith("setup")]
        until_step(script, 0, 3, saved=2)
        driver_heard(script, signal.SIGINT)
        script.send(signal.SIGINT)
        assert script.wait() == -signal.SIGINT and "stopped by Ctrl-C" in script.output
        assert "Traceback" not in script.output
        assert "RETURNED" not in script.output
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
        assert {t.status for t in trials_of(stage).values()} <= {"PAUSED", "PENDING"}
        assert load_state(ExperimentPaths(stage.results / "e")).run_ended == "interrupted"
        stage.let(9, "gate0")
        stage.let(9, "gate2")
        again = stage.start(ORDER="[0, 2]")
        again.hear("loaded 0 2")
        assert "RETURNED ['TERMINATED', 'TERMINATED']" in again.ends_well()
        assert all(iterations(t) == [1, 2, 3, 4] for t in trials_of(stage).values())


def test_f37_ctrl_c_while_preempted_ends_at_once(tmp_path):
    with stage_of(tmp_path) as stage:
        script = stage.start(ORDER="[0]", FREQ="1")
        until_step(script, 0, 3)
        driver_heard(script, signal.SIGTERM)
        script.send(signal.SIGINT)
        assert script.wait(5) != 0
        stage.let(9, "gate0")
        assert "RETURNED ['TERMINATED']" in stage.run(ORDER="[0]")


def test_d17_ctrl_c_deletes_no_checkpoint_that_retention_keeps(tmp_path):
    with stage_of(tmp_path) as stage:
        script = stage.start(ORDER="[0, 2]", FREQ="1", MORE='{"keep_checkpoints_num": 2}')
        script.hear("step", 2)
        until_step(script, 0, 4, saved=3)
        until_step(script, 2, 3, saved=2)
        before = {i: kept(t) for i, t in trials_of(stage).items()}
        driver_heard(script, signal.SIGINT)
        script.send(signal.SIGINT)  # and the second one as little
        script.wait()
        after = trials_of(stage)
        for i, names in {
            0: ["checkpoint_000002", "checkpoint_000003"],
            2: ["checkpoint_000001", "checkpoint_000002"],
        }.items():
            assert set(names) <= set(before[i]) and set(names) <= set(kept(after[i]))
            for name in names:
                verify.check(Path(after[i].path, name))


def one(config):
    tune.report({"a": 1})


@pytest.mark.parametrize(
    "handler", [signal.SIG_DFL, signal.SIG_IGN, lambda number, frame: None, signal.default_int_handler]
)
@pytest.mark.parametrize("ends", ["well", "with an error of a callback"])
def test_f37_the_users_own_handlers_are_back_after_the_run(tmp_path, handler, ends):
    class Fails(tune.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            assert signal.getsignal(signal.SIGINT) is not handler
            if ends != "well":
                raise RuntimeError("a callback's mistake")

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        try:
            tune.run(one, storage_path=tmp_path, executor="inline", verbose=0, callbacks=[Fails()])
        except RuntimeError:
            assert ends != "well"
        assert [signal.getsignal(number) for number in numbers] == [handler] * 4
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def test_f37_outside_the_main_thread_signals_stay_with_the_user(tmp_path):
    seen, results = [], []
    mine = signal.getsignal(signal.SIGINT)

    class Looks(tune.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            seen.append(signal.getsignal(signal.SIGINT) is mine)

    def start():
        results.append(tune.run(one, storage_path=tmp_path, num_samples=2, verbose=0, callbacks=[Looks()]))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert seen == [True, True]
    assert [trial.status for trial in results[0].trials] == ["TERMINATED"] * 2


def test_f37_inside_a_running_event_loop_as_in_a_notebook(tmp_path):
    async def cell():
        return tune.run(one, storage_path=tmp_path, num_samples=2, verbose=0)

    assert [trial.status for trial in asyncio.run(cell()).trials] == ["TERMINATED"] * 2


# --- the other ways to stop ---------------------------------------------------------------------------------------


def test_a_spent_time_budget_saves_returns_and_a_resume_has_a_fresh_one(tmp_path):
    with stage_of(tmp_path) as stage:
        script = stage.start(ORDER="[0, 2]", MORE='{"time_budget_s": 2.0, "max_concurrent_trials": 1}')
        until_step(script, 0, 3)
        script.hear("halt")
        stage.let(1, "gate0")
        output = script.ends_well()
        assert "RETURNED ['PAUSED']" in output and "budget" in output and "resume=" in output
        stage.let(9, "gate0")
        stage.let(9, "gate2")
        again = stage.start(ORDER="[0, 2]", MORE='{"time_budget_s": 30}')
        again.hear("loaded 0 3")
        assert "RETURNED ['TERMINATED', 'TERMINATED']" in again.ends_well()


def test_in_one_process_a_signal_and_a_budget_act_at_the_trials_next_result(tmp_path):
    """The inline executor runs a whole trial in one turn of the loop."""

    def endless(config):
        n = 0
        while not tune.get_context().should_stop():
            n += 1
            tune.report({"n": n}, checkpoint=tune.Checkpoint.from_dict({"n": n}) if n % 5 == 0 else None)
            if n == 7 and config["signal"]:
                os.kill(os.getpid(), config["signal"])
            assert n < 100_000

    given = {"storage_path": tmp_path, "executor": "inline", "verbose": 0, "num_samples": 2}
    with pytest.raises(tune.Interrupted) as halted:
        tune.run(endless, name="interrupted", config={"signal": signal.SIGINT}, **given)
    trials = halted.value.analysis.trials
    assert [(trial.status, trial.iteration) for trial in trials[:1]] == [("PAUSED", 8)]
    assert len(halted.value.results) == len(trials)
    assert halted.value.results[0].end_reason == "stopped by you"
    with pytest.raises(SystemExit) as left:
        tune.run(endless, name="preempted", config={"signal": signal.SIGTERM}, **given)
    assert left.value.code == 143
    with pytest.raises(SystemExit) as left:
        tune.run(endless, name="hung-up", config={"signal": signal.SIGHUP}, **given)
    assert left.value.code == 129
    spent = tune.run(endless, name="spent", config={"signal": 0}, time_budget_s=0.2, **given)
    assert [trial.status for trial in spent.trials[:1]] == ["PAUSED"]
    assert spent.results_df["end_reason"].iloc[0] == "time budget spent"
    stored = tune.ExperimentAnalysis(tmp_path / "preempted").results_df
    assert stored["end_reason"].iloc[0] == "stopped by SIGTERM"
    stored = tune.ExperimentAnalysis(tmp_path / "hung-up").results_df
    assert stored["end_reason"].iloc[0] == "stopped by SIGHUP (terminal or ssh connection closed)"
    assert {trial.attempt for trial in spent.trials[1:]} <= {0, 1}


def test_in_one_process_sighup_that_is_ignored_stays_ignored(tmp_path):
    def hung_up(config):
        for n in range(3):
            signal.raise_signal(signal.SIGHUP)
            tune.report({"n": n})

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        analysis = tune.run(hung_up, storage_path=tmp_path, executor="inline", verbose=0)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert [(trial.status, trial.iteration) for trial in analysis.trials] == [("TERMINATED", 3)]


def test_a_trial_that_a_scheduler_or_a_stopper_ends_saves_only_under_checkpoint_at_end(tmp_path):
    class Endless(tune.Trainable):
        def setup(self, config):
            self.n = 0

        def step(self):
            self.n += 1
            return {"n": self.n, "score": self.n * config_of(self)}

        def save_checkpoint(self, directory):
            return {"n": self.n}

        def load_checkpoint(self, checkpoint):
            self.n = checkpoint["n"]

    def config_of(trainable):
        return trainable.config["x"]

    settings = {"config": {"x": tune.grid_search([3, 2, 1])}, "metric": "score", "mode": "max", "verbose": 0}
    for at_end in (False, True):
        analysis = tune.run(
            Endless,
            name=f"at-end-{at_end}",
            scheduler=ASHAScheduler(grace_period=1, reduction_factor=3, max_t=9),
            stop={"n": 6},
            checkpoint_at_end=at_end,
            storage_path=tmp_path,
            executor="inline",
            **settings,
        )
        assert [(t.status, t.iteration) for t in analysis.trials] == [
            ("TERMINATED", 6),
            ("TERMINATED", 1),
            ("TERMINATED", 1),
        ]
        assert [len(kept(trial)) for trial in analysis.trials] == [int(at_end)] * 3


STOPS = ["fail_fast", "ctrl_c", "exception", "budget", "kill"]


@pytest.mark.parametrize("how", STOPS)
def test_f24_after_every_kind_of_stop_a_resume_runs_exactly_what_is_unfinished(tmp_path, how):
    """0 is done, 1 is errored, 2 is in its third step, 3 was never created."""
    order = "[0, 2, 1, 3]" if how == "fail_fast" else "[0, 1, 2, 3]"
    more = {
        "fail_fast": '{"max_concurrent_trials": 2, "fail_fast": true}',
        "budget": '{"max_concurrent_trials": 1, "time_budget_s": 2.0}',
    }.get(how, '{"max_concurrent_trials": 1}')
    with stage_of(tmp_path) as stage:
        script = stage.start(ORDER=order, MORE=more, HOW=how, FREQ="2")
        stage.let(4, "gate0")
        if how == "fail_fast":
            until_step(script, 2, 3, saved=2)
            stage.let(3, "gate1")
            script.hear("halt")
        else:
            stage.let(3, "gate1")
            until_step(script, 2, 3, saved=2)
        if how == "ctrl_c":
            driver_heard(script, signal.SIGINT)
        elif how == "budget":
            script.hear("halt")
        elif how == "kill":
            script.kill()
        if how != "kill":
            stage.let(1, "gate2")
            code = script.wait()
            assert code == {"exception": 1, "ctrl_c": -signal.SIGINT}.get(how, 0), script.output
        at = {"exception": 2, "kill": 2}.get(how, 3)
        now = trials_of(stage)
        assert sorted(now) == [0, 1, 2]
        assert (now[0].status, now[1].status) == ("TERMINATED", "ERROR")
        assert now[2].status == ("RUNNING" if how == "kill" else "PAUSED")

        for nothing_left in (False, True):
            stage.unread()
            for gate in ("gate2", "gate3"):
                stage.let(9, gate)
            again = stage.start(ORDER=order)
            again.ends_well()
            news = stage.unread()
            began = sorted(line.split()[1] for line in news if line.startswith("setup"))
            loaded = [line for line in news if line.startswith("loaded")]
            assert (began, loaded) == (([], []) if nothing_left else (["2", "3"], [f"loaded 2 {at}"]))
        now = trials_of(stage)
        assert {i: t.status for i, t in now.items()} == {0: "TERMINATED", 1: "ERROR", 2: "TERMINATED", 3: "TERMINATED"}

        stage.let(9, "gate1")
        last = stage.start(ORDER=order, RESUME="AUTO+ERRORED", MENDED="1")
        last.ends_well()
        news = stage.unread()
        assert [line.split()[1] for line in news if line.startswith("setup")] == ["1"]
        assert [line for line in news if line.startswith("loaded")] == ["loaded 1 2"]
        now = trials_of(stage)
        assert {t.status for t in now.values()} == {"TERMINATED"}
        assert all(iterations(t) == [1, 2, 3, 4] for t in now.values())


def test_fail_fast_raise_raises_the_trials_own_exception(tmp_path):
    class Mine(Exception):
        pass

    def fails(config):
        tune.report({"a": 1})
        if config["i"] == 1:
            raise Mine("at once", 7)

    with pytest.raises(Exception, match="at once") as caught:
        tune.run(
            fails,
            config={"i": tune.grid_search([0, 1, 2])},
            name="e",
            storage_path=tmp_path,
            fail_fast="raise",
            max_concurrent_trials=1,
            verbose=0,
        )
    assert (type(caught.value).__name__, caught.value.args) == ("Mine", ("at once", 7))
    trials = tune.ExperimentAnalysis(tmp_path / "e").trials
    assert [trial.status for trial in trials] == ["TERMINATED", "ERROR"]


def test_fail_fast_raise_after_a_resume_raises_the_new_failure_and_not_the_old_one(tmp_path):
    def fails(config):
        tune.report({"a": 1})
        if config["i"] in (0, 2):
            raise (KeyError, None, IndexError)[config["i"]](f"of trial {config['i']}")

    settings = {"config": {"i": tune.grid_search([0, 1, 2])}, "name": "e", "storage_path": tmp_path, "verbose": 0}
    settings |= {"fail_fast": "raise", "max_concurrent_trials": 1}
    with pytest.raises(KeyError, match="of trial 0"):
        tune.run(fails, **settings)
    with pytest.raises(IndexError, match="of trial 2"):
        tune.run(fails, resume="AUTO", **settings)


def test_fail_fast_returns_or_raises_with_what_there_is_as_raise_on_failed_trial_says(tmp_path):
    def fails(config):
        tune.report({"a": config["i"]})
        if config["i"] == 1:
            raise ValueError("boom")

    settings = {
        "config": {"i": tune.grid_search([0, 1, 2])},
        "storage_path": tmp_path,
        "verbose": 0,
        "executor": "inline",
    }
    settings |= {"fail_fast": True, "max_concurrent_trials": 1}
    shown = tune.run(fails, name="one", raise_on_failed_trial=False, **settings)
    assert [trial.status for trial in shown.trials] == ["TERMINATED", "ERROR"]
    with pytest.raises(TrialsFailedError, match="boom") as caught:
        tune.run(fails, name="two", **settings)
    assert [trial.status for trial in caught.value.analysis.trials] == ["TERMINATED", "ERROR"]


# --- between the loop's end and the copying of the rest ----------------------------------------------------------


def saves_once(config):
    tune.report({"n": 1}, checkpoint=tune.Checkpoint.from_dict({"n": 1}))


def interrupts(when, number=signal.SIGINT):
    """A callback that gets Ctrl-C, or another signal, at that moment."""

    def strike(self, *arguments, **info):
        signal.raise_signal(number)

    return type("Interrupts", (tune.Callback,), {when: strike})()


def test_f37_ctrl_c_after_the_last_trial_skips_only_the_wait(tmp_path):
    analysis = tune.run(
        saves_once,
        storage_path=tmp_path / "results",
        name="e",
        sync_config=tune.SyncConfig(upload_dir=tmp_path / "share"),
        callbacks=[interrupts("on_experiment_end")],
        executor="inline",
        verbose=0,
    )
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"]
    assert len(tune.ExperimentAnalysis(tmp_path / "share" / "e").trials) == 1, "what can be copied at once is"


def test_f37_ctrl_c_before_the_wait_for_a_store_that_hangs_ends_with_what_is_missing(tmp_path):
    hang = tmp_path / "hang"

    def hangs(source, target):
        while hang.exists():
            time.sleep(0.1)  # until its process is ended
        if os.path.isdir(source):
            shutil.copytree(source, target, dirs_exist_ok=True)

    class Hangs(tune.Callback):
        def on_trial_start(self, iteration, trials, trial, **info):
            hang.touch()

    with pytest.raises(SyncError, match="did not arrive") as raised:
        tune.run(
            saves_once,
            storage_path=tmp_path / "results",
            name="e",
            sync_config=tune.SyncConfig(upload_dir=tmp_path / "share", syncer=hangs),
            callbacks=[Hangs(), interrupts("on_experiment_end")],
            verbose=0,
        )
    assert [trial.status for trial in raised.value.analysis.trials] == ["TERMINATED"]
    assert any("checkpoint_000001" in line for line in raised.value.missing)


FINISHED = """
import os, signal
number = int(os.environ["NUMBER"])

class Strikes(tune.Callback):
    def on_experiment_end(self, trials, **info):
        if os.environ["WHEN"] == "callback":
            signal.raise_signal(number)

def train(config):
    tune.report({"n": 1})

analysis = tune.run(
    train,
    name="e",
    storage_path=os.environ["RESULTS"],
    callbacks=[Strikes()],
    executor="inline",
    on_end=f"kill -{number} $PPID" if os.environ["WHEN"] == "hook" else None,
)
print("RETURNED", [trial.status for trial in analysis.trials])
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
@pytest.mark.parametrize("when", ["callback", "hook"])
def test_f36_a_notice_after_the_last_trial_does_not_change_how_a_finished_script_ends(tmp_path, number, when):
    with stage_of(tmp_path, FINISHED) as stage:
        assert "RETURNED ['TERMINATED']" in stage.run(NUMBER=str(int(number)), WHEN=when)
        assert load_state(ExperimentPaths(stage.results / "e")).run_ended == "finished"


def test_f36_a_script_with_a_handler_gets_a_late_notice_when_the_run_has_returned(tmp_path):
    got = []
    arrived = tmp_path / "share" / "e" / "journal"
    before = signal.signal(signal.SIGTERM, lambda number, frame: got.append((number, arrived.exists())))
    try:
        analysis = tune.run(
            saves_once,
            storage_path=tmp_path / "results",
            name="e",
            sync_config=tune.SyncConfig(upload_dir=tmp_path / "share"),
            callbacks=[interrupts("on_experiment_end", signal.SIGTERM)],
            executor="inline",
            verbose=0,
        )
    finally:
        signal.signal(signal.SIGTERM, before)
    assert got == [(signal.SIGTERM, True)], "once, after everything was copied"
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"]


def test_f36_a_second_notice_changes_nothing(tmp_path):
    got = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))

    class Twice(tune.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            signal.raise_signal(signal.SIGTERM)

        def on_experiment_end(self, trials, **info):
            signal.raise_signal(signal.SIGTERM)

    try:
        with pytest.raises(SystemExit) as left:
            tune.run(saves_once, storage_path=tmp_path, name="e", callbacks=[Twice()], executor="inline", verbose=0)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert left.value.code == 143 and got == []


def test_f36_a_late_notice_bounds_the_wait_for_a_store_that_hangs_by_the_grace_time(tmp_path, monkeypatch):
    monkeypatch.setenv("TUNE_GRACE_S", "0.1")
    hang = tmp_path / "hang"

    def hangs(source, target):
        while hang.exists():
            time.sleep(0.1)  # until its process is ended
        if os.path.isdir(source):
            shutil.copytree(source, target, dirs_exist_ok=True)

    class Hangs(tune.Callback):
        def on_trial_start(self, iteration, trials, trial, **info):
            hang.touch()

    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        with pytest.raises(SyncError, match="did not arrive") as raised:
            tune.run(
                saves_once,
                storage_path=tmp_path / "results",
                name="e",
                sync_config=tune.SyncConfig(upload_dir=tmp_path / "share", syncer=hangs),
                callbacks=[Hangs(), interrupts("on_experiment_end", signal.SIGTERM)],
                verbose=0,
            )
    finally:
        signal.signal(signal.SIGTERM, before)
    assert [trial.status for trial in raised.value.analysis.trials] == ["TERMINATED"]
