"""Nothing of a trial outlives it, whoever dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from driving import start_stubborn

from trainables.wire import Answer

cloudpickle.register_pickle_by_value(sys.modules[__name__])

HERE = Path(__file__).parent


def leaves_a_stubborn_one(config: dict[str, Any], talk: Any) -> None:
    talk.report(pids=[os.getpid(), start_stubborn()])
    end = config["end"]
    if end == "crash":
        os.abort()
    if end == "raise":
        raise ValueError("on purpose")
    if end == "stop":
        talk.report()
    if end == "wait":
        while True:
            signal.pause()


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


@pytest.mark.parametrize("victim", ["trial", "keeper", "server", "by kill()"])
def test_t05_a_stubborn_grandchild_is_gone_after_kill_9(local: Any, watch: Any, victim: str) -> None:
    driver = local(leaves_a_stubborn_one)
    trial = driver.launch({"end": "wait"})
    watched = [watch(pid) for pid in driver.first_report(trial)["pids"]]
    (server, _), (keeper, _) = driver.executor.owned_processes()
    if victim == "by kill()":
        driver.executor.kill(trial)
    else:
        os.kill({"trial": watched[0].pid, "keeper": keeper, "server": server}[victim], signal.SIGKILL)
    exited = driver.finish(trial)
    assert [w.gone() for w in watched] == [True, True]
    assert exited.status == -signal.SIGKILL
    assert exited.reason == {"trial": None, "by kill()": "killed"}.get(victim, "lost")
    # and the next trial starts as if nothing had been
    again = driver.launch({"end": "return"})
    assert driver.finish(again).status == 0


def test_t05_server_and_keeper_killed_together_leave_nothing(local: Any, watch: Any) -> None:
    driver = local(leaves_a_stubborn_one)
    trial = driver.launch({"end": "wait"})
    watched = [watch(pid) for pid in driver.first_report(trial)["pids"]]
    for pid, _ in reversed(driver.executor.owned_processes()):
        os.kill(pid, signal.SIGKILL)
    assert driver.finish(trial).reason == "lost"
    # The trial dies of its keeper's death: it may be half-way out, without memory or a name, when it is looked for.
    assert [w.gone(within_s=10) for w in watched] == [True, True]


def test_room_comes_again_while_what_a_dead_server_left_is_ended(local: Any) -> None:
    driver = local(leaves_a_stubborn_one)
    executor = driver.executor
    driver.finish(driver.launch({"end": "return"}))
    (server, _), (keeper, _) = executor.owned_processes()
    assert executor.can_launch({"cpu": 1.0}) and not executor.awaits_room()
    os.kill(keeper, signal.SIGSTOP)  # it takes its time to end
    try:
        os.kill(server, signal.SIGKILL)
        driver.until(lambda: not executor.can_launch({"cpu": 1.0}))
        assert executor.awaits_room()  # no trial runs that would tell: a loop is to go on all the same
    finally:
        os.kill(keeper, signal.SIGCONT)
    driver.until(lambda: executor.can_launch({"cpu": 1.0}))
    assert not executor.awaits_room()
    assert driver.finish(driver.launch({"end": "return"})).status == 0


DRIVER = """
import json, os, signal, sys
sys.path[:0] = [{here!r}, {root!r}]
from pathlib import Path
from driving import Driver, StandInExecutor, start_stubborn

def trainable(config, talk):
    talk.report(pids=[os.getpid(), start_stubborn()])
    while True:
        signal.pause()

executor = StandInExecutor(cpus=2)
executor.start(trainable, marker="driver-{here}", temporary=Path({tmp!r}))
driver = Driver(executor, {tmp!r})
trials = [driver.launch(), driver.launch()]
pids = [pid for trial in trials for pid in driver.first_report(trial)["pids"]]
print(json.dumps(pids + [pid for pid, _ in executor.owned_processes()]), flush=True)
driver.finish_all()
"""


def test_t05_f35_nothing_is_left_when_the_driver_is_killed(tmp_path: Path, watch: Any) -> None:
    root = str(HERE.parents[2])
    script = DRIVER.format(here=str(HERE), root=root, tmp=str(tmp_path))
    driver = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    pids = json.loads(driver.stdout.readline())
    watched = [watch(pid) for pid in pids]
    assert len(watched) == 2 * 2 + 1 + 2
    driver.kill()
    driver.wait()
    driver.stdout.close()
    assert all(w.gone(within_s=10.0) for w in watched)


def forks_four(config: dict[str, Any], talk: Any) -> None:
    pids = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            hoard = bytearray(1_000_000)
            while hoard:
                signal.pause()
        pids.append(pid)
    talk.report(pids=pids)
    if config.get("wait"):
        signal.pause()


def test_f35_the_next_trial_starts_only_when_nothing_of_the_last_is_left(local: Any, watch: Any) -> None:
    driver = local(forks_four, cpus=1)
    first = driver.launch({"wait": True})
    watched = [watch(pid) for pid in driver.first_report(first)["pids"]]
    assert not driver.executor.can_launch({"cpu": 1.0})
    driver.executor.kill(first)
    second = driver.launch()  # waits for room
    driver.first_report(second)
    assert [type(e).__name__ for e in driver.events if e.trial_id == first][-1] == "Exited"
    assert all(w.gone() for w in watched)
    order = [(e.trial_id, type(e).__name__) for e in driver.events]
    assert order.index((first, "Exited")) < order.index((second, "Started"))


def spins(config: dict[str, Any], talk: Any) -> None:
    talk.report(pid=os.getpid())
    if config["how"] == "loop":
        while True:
            pass
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
    time.sleep(10_000)  # blocked in C, deaf


@pytest.mark.parametrize("how", ["loop", "blocked"])
def test_f40_a_trial_that_hangs_is_ended_at_its_time_limit(local: Any, how: str) -> None:
    driver = local(spins, cpus=1)
    trial = driver.launch({"how": how}, timeout_s=2.0)  # it has that long to say something
    begun = time.monotonic()
    exited = driver.finish(trial)
    assert (exited.reason, exited.status) == ("timeout", -signal.SIGKILL)
    assert time.monotonic() - begun < 7.0
    assert driver.reports(trial), "what it had said is not lost"
    assert driver.executor.can_launch({"cpu": 1.0})


def ends_with_a_thread_left(config: dict[str, Any], talk: Any) -> None:
    import threading

    threading.Thread(target=threading.Event().wait).start()


def test_a_trial_that_said_its_last_word_and_stays_is_ended_after_its_grace(local: Any) -> None:
    driver = local(ends_with_a_thread_left)
    trial = driver.launch(grace_s=0.2)
    assert driver.finish(trial).reason is None


def test_shutdown_leaves_no_process(local: Any, watch: Any) -> None:
    driver = local(leaves_a_stubborn_one)
    trial = driver.launch({"end": "wait"})
    pids = driver.first_report(trial)["pids"] + [pid for pid, _ in driver.executor.owned_processes()]
    watched = [watch(pid) for pid in pids]
    driver.executor.shutdown()
    assert len(watched) == 4 and all(w.gone() for w in watched)
    driver.executor.shutdown()  # once more is no error


def test_shutdown_while_the_server_hangs_in_an_import(
    local: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watch: Any
) -> None:
    (tmp_path / "never_ends.py").write_text("import signal\nwhile True: signal.pause()\n")
    monkeypatch.syspath_prepend(tmp_path)

    def trainable(config: Any, talk: Any) -> None:
        import never_ends  # type: ignore[import-not-found]  # noqa: F401

    driver = local(trainable)
    server = watch(driver.executor.owned_processes()[0][0])
    driver.executor.shutdown()
    assert server.gone()


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
