"""Processes as the kernel sees them: who dies with whom, and what is left is found and ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from driving import SCRIPTS, leaves_a_stubborn_one, script_environment

from trainables.wire import Answer

cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.mark.parametrize("end", ["return", "stop", "crash", "raise"])
def test_t05_a_stubborn_grandchild_is_gone_when_its_trial_is_over(local: Any, watch: Any, end: str) -> None:
    driver = local(leaves_a_stubborn_one)
    driver.answer = lambda report: Answer(then="continue" if report.iteration == 1 else "stop")
    watched: list[Any] = []
    dispatch = driver.dispatch

    def look(events: Any) -> None:
        for event in events:
            if hasattr(event, "body") and hasattr(event.body, "metrics"):
                watched.extend(watch(pid) for pid in json.loads(bytes(event.body.metrics)).get("pids", ()))
        dispatch(events)

    driver.dispatch = look
    trial = driver.launch({"end": end})
    exited = driver.finish(trial)
    assert [w.gone() for w in watched] == [True, True]
    assert (exited.status, exited.reason) == (-signal.SIGABRT if end == "crash" else 0, None)


def test_t05_f35_nothing_is_left_when_the_driver_is_killed(tmp_path: Path, watch: Any) -> None:
    driver = subprocess.Popen(
        [sys.executable, SCRIPTS / "driver_to_kill.py", tmp_path],
        stdout=subprocess.PIPE,
        text=True,
        env=script_environment(),
    )
    assert driver.stdout is not None
    pids = json.loads(driver.stdout.readline())
    watched = [watch(pid) for pid in pids]
    assert len(watched) == 2 * 2 + 1 + 2
    driver.kill()
    driver.wait()
    driver.stdout.close()
    assert all(w.gone(within_s=10.0) for w in watched)


def test_the_lock_is_inherited_and_the_marker_is_in_every_process(tmp_path: Path) -> None:
    from driving import Driver, StandInExecutor

    from tuner.executors.local.process_tree import marked

    def trainable(config: Any, talk: Any) -> None:
        talk.report(lock=os.fstat(config["fd"]).st_ino, marker=os.environ["TUNER_OWNER"], pid=os.getpid())

    with open(tmp_path / "lock", "w") as lock:
        executor = StandInExecutor(cpus=1)
        executor.start(trainable, lock_fds=[lock.fileno()], marker="the-owner", temporary=tmp_path)
        driver = Driver(executor, tmp_path)
        seen = driver.first_report(driver.launch({"fd": lock.fileno()}))
        assert seen["lock"] == os.fstat(lock.fileno()).st_ino
        assert seen["marker"] == "the-owner"
        pids = {pid for pid, _ in executor.owned_processes()}
        assert len(pids) == 2 and pids <= set(marked("TUNER_OWNER", "the-owner"))
        driver.finish_all()
        executor.shutdown()
    assert marked("TUNER_OWNER", "the-owner") == []
