"""Keepers: nothing of a trial outlives it, whoever dies."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import cloudpickle
import pytest
from driving import leaves_a_stubborn_one

cloudpickle.register_pickle_by_value(sys.modules[__name__])


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


def ends_with_a_thread_left(config: dict[str, Any], talk: Any) -> None:
    import threading

    threading.Thread(target=threading.Event().wait).start()


def test_a_trial_that_said_its_last_word_and_stays_is_ended_after_its_grace(local: Any) -> None:
    driver = local(ends_with_a_thread_left)
    trial = driver.launch(grace_s=0.2)
    assert driver.finish(trial).reason is None
