"""Processes as the kernel sees them: who dies with whom, and what is left is found and ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from driving import SCRIPTS, leaves_a_stubborn_one, script_environment

from trainables.wire import Answer
from tuner.executors.local import process_tree

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


# --- one by one ------------------------------------------------------------------------------------------------------


@pytest.fixture
def sleeper() -> Iterator[Any]:
    """`sleeper(**environment)` starts a process that does nothing."""
    started: list[subprocess.Popen[bytes]] = []

    def start(**environment: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["sleep", "1000"], env={**os.environ, **environment}))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.wait()


def test_a_process_is_told_apart_by_when_it_was_started(sleeper: Any) -> None:
    one = sleeper()
    seen = process_tree.start_time(one.pid)
    assert seen is not None and seen == process_tree.start_time(one.pid)
    assert seen >= (process_tree.start_time(os.getpid()) or 0)
    one.kill()
    one.wait()
    assert process_tree.start_time(one.pid) is None


def test_who_is_dead_and_not_collected_is_a_zombie(sleeper: Any) -> None:
    one = sleeper()
    assert not process_tree.is_zombie(one.pid)
    one.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
    assert process_tree.is_zombie(one.pid) and process_tree.start_time(one.pid) is not None
    one.wait()
    assert process_tree.is_zombie(one.pid), "gone is dead too"


def test_children_are_all_living_and_dead_ones(sleeper: Any) -> None:
    before = set(process_tree.children(os.getpid()))
    one, other = sleeper(), sleeper()
    one.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
    assert set(process_tree.children(os.getpid())) - before == {one.pid, other.pid}


def test_killing_what_is_gone_is_no_error(sleeper: Any) -> None:
    one = sleeper()
    one.kill()
    one.wait()
    process_tree.kill(one.pid)
    process_tree.kill_group(one.pid)


@pytest.mark.parametrize(
    ("mark", "found"),
    [("owner", True), ("owner.node-2", True), ("owner2", False), ("own", False), ("other.owner", False)],
)
def test_a_mark_covers_agents_of_its_owner_and_nobody_elses(mark: str, found: bool, sleeper: Any) -> None:
    one = sleeper(MINE_TO_TEST=mark)
    ends_as = {True: -signal.SIGKILL, False: None}
    assert (one.pid in process_tree.marked("MINE_TO_TEST", "owner")) == found
    process_tree.end_marked("MINE_TO_TEST", "owner")
    assert one.poll() == ends_as[found]


@pytest.mark.parametrize(("does", "status"), [("exit", 3 << 8), ("wait", signal.SIGKILL)])
def test_every_child_is_ended_also_what_falls_to_this_process_meanwhile(does: str, status: int) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPTS / "ends_its_children.py", does],
        capture_output=True,
        text=True,
        timeout=60,
        env=script_environment(),
    )
    assert done.stdout == f"{int(status)} []\n", done.stderr
