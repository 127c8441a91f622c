"""The executor of processes of this machine: what it starts, tells, ends and wakes from."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from typing import Any

import cloudpickle
import pytest
from driving import leaves_a_stubborn_one

from trainables.wire import Answer
from tuner.executors.base import Message
from tuner.executors.local.executor import LocalExecutor
from tuner.executors.local.forkserver import NUMBER

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_an_attempt_is_started_then_speaks_then_exits(local: Any) -> None:
    def trainable(config: Any, talk: Any) -> None:
        talk.report(value=config["x"] + 1)

    driver = local(trainable)
    trial = driver.launch({"x": 1})
    assert driver.finish(trial).status == 0
    kinds = [type(e.body).__name__ if isinstance(e, Message) else type(e).__name__ for e in driver.events]
    assert kinds == ["Started", "Report", "Finished", "Exited"]
    assert driver.reports(trial) == [{"value": 2}]


# --- environment -----------------------------------------------------------------------------------------


def shows_environment(config: Any, talk: Any) -> None:
    talk.report(**{name: os.environ.get(name) for name in config["names"]})


def test_gpus_are_assigned_whole_and_shared(local: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def trainable(config: Any, talk: Any) -> None:
        talk.report(gpus=os.environ.get("CUDA_VISIBLE_DEVICES"))
        if config.get("stay"):
            signal.pause()

    driver = local(trainable, cpus=8, gpus=3)
    asked = [0.5, 0.5, 1, 0.3, 0.3]
    trials = [driver.launch({"stay": True}, resources={"cpu": 1, "gpu": gpu}) for gpu in asked]
    assert [driver.first_report(t)["gpus"] for t in trials] == ["0", "0", "1", "2", "2"]
    assert not driver.executor.can_launch({"gpu": 0.5})
    assert driver.executor.can_launch({"gpu": 0.4})
    without = driver.launch({}, resources={"cpu": 1})
    assert driver.first_report(without)["gpus"] == "", "a trial that asked for none sees none"
    for trial in trials[:2]:
        driver.executor.kill(trial)
        driver.finish(trial)
    again = driver.launch({}, resources={"gpu": 1})
    assert driver.first_report(again)["gpus"] == "0"


def test_gpu_ids_are_those_the_driver_was_given(local: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-abc")
    driver = local(shows_environment)
    assert driver.executor.total()["gpu"] == 2
    trial = driver.launch({"names": ["CUDA_VISIBLE_DEVICES"]}, resources={"gpu": 2})
    assert driver.first_report(trial) == {"CUDA_VISIBLE_DEVICES": "5,GPU-abc"}


# --- waking ------------------------------------------------------------------------------------------------------


def test_wake_ends_run_once_from_a_thread_and_from_a_signal_handler(local: Any) -> None:
    driver = local(shows_environment)
    thread = threading.Thread(target=driver.executor.wake)
    thread.start()
    thread.join()
    driver.executor.run_once(driver.dispatch, None)
    before = signal.signal(signal.SIGALRM, lambda *_: driver.executor.wake())
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    driver.executor.run_once(driver.dispatch, None)
    while not driver.executor._slots.server.ready:  # the server's word may have come first
        driver.executor.run_once(driver.dispatch, None)
    signal.signal(signal.SIGALRM, before)


class HandlerError(OSError):
    """What a handler of the user's raises; TimeoutError is an OSError too."""


@pytest.mark.parametrize("when", ["a launch", "an answer", "a kill"])
def test_f37_an_error_that_the_users_signal_handler_raises_gets_out(
    local: Any, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The signal comes in the very moment when the executor writes to its processes."""

    def trainable(config: Any, talk: Any) -> None:
        while True:
            talk.report(value=1)

    def alarm(*_: Any) -> None:
        raise HandlerError("the user's")

    def then(real: Any) -> Any:
        def disturbed(end: Any, data: Any, *more: Any) -> Any:
            if data != [fork_one]:
                signal.raise_signal(signal.SIGALRM)
            return real(end, data, *more)

        return disturbed

    fork_one = NUMBER.pack(b"K", 1, 0)  # goes to the server before the launch itself goes to a keeper
    before = signal.signal(signal.SIGALRM, alarm)
    driver = local(trainable)
    try:
        if when == "a launch":
            with monkeypatch.context() as patch, pytest.raises(HandlerError):
                patch.setattr(socket, "send_fds", then(socket.send_fds))
                driver.launch()
            return
        trial = driver.launch()
        driver.first_report(trial)
        with monkeypatch.context() as patch, pytest.raises(HandlerError):
            patch.setattr(socket.socket, "send", then(socket.socket.send))
            if when == "an answer":
                driver.executor.tell(trial, Answer())
            else:
                driver.executor.kill(trial)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_the_real_worker_runs_a_function_and_a_class_of_the_script(local: Any) -> None:
    from trainables.trainable import Trainable

    def function(config: Any) -> None:
        from trainables.session import report

        for i in range(3):
            report({"loss": config["lr"] / (i + 1)})

    class Class(Trainable):
        def setup(self, config: Any) -> None:
            self.lr = config["lr"]

        def step(self) -> Any:
            return {"loss": self.lr / (self.iteration + 1), "done": self.iteration == 2}

    for trainable in (function, Class):
        driver = local(trainable, kind=LocalExecutor)
        trial = driver.launch({"lr": 1.0})
        assert driver.finish(trial).status == 0
        assert [round(r["loss"], 3) for r in driver.reports(trial)] == [1.0, 0.5, 0.333], driver.events


cloudpickle.register_pickle_by_value(sys.modules[__name__])


def spins(config: dict[str, Any], talk: Any) -> None:
    talk.report(pid=os.getpid())
    if config["how"] == "ends":
        return
    if config["how"] == "loop":
        while True:
            pass
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
    time.sleep(10_000)  # blocked in C, deaf


@pytest.mark.parametrize("how", ["loop", "blocked"])
def test_f40_a_trial_that_hangs_is_ended_at_its_time_limit(local: Any, how: str) -> None:
    driver = local(spins, cpus=1)
    driver.finish(driver.launch({"how": "ends"}))  # the server stands
    trial = driver.launch({"how": how}, timeout_s=2.0)  # it has that long to say something
    exited = driver.finish(trial)
    assert (exited.reason, exited.status) == ("timeout", -signal.SIGKILL)
    assert driver.reports(trial), "what it had said is not lost"
    assert driver.executor.can_launch({"cpu": 1.0})


def test_shutdown_leaves_no_process(local: Any, watch: Any) -> None:
    driver = local(leaves_a_stubborn_one)
    trial = driver.launch({"end": "wait"})
    pids = driver.first_report(trial)["pids"] + [pid for pid, _ in driver.executor.owned_processes()]
    watched = [watch(pid) for pid in pids]
    driver.executor.shutdown()
    assert len(watched) == 4 and all(w.gone() for w in watched)
    driver.executor.shutdown()  # once more is no error
