"""Slots: how many attempts there are at once, and when the next begins."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import cloudpickle
from driving import leaves_a_stubborn_one

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_slots_are_used_at_once_and_again(local: Any) -> None:
    def trainable(config: Any, talk: Any) -> None:
        talk.report(keeper=os.getppid())

    driver = local(trainable, cpus=2)
    for _ in range(6):
        driver.launch()
    driver.finish_all()
    keepers = {driver.reports(f"t{i}")[0]["keeper"] for i in range(6)}
    assert len(keepers) <= 2
    assert len(driver.executor.owned_processes()) == 1 + len(keepers)


def test_two_fractions_share_one_core(local: Any) -> None:
    def trainable(config: Any, talk: Any) -> None:
        talk.report()

    driver = local(trainable, cpus=1)
    driver.launch(resources={"cpu": 0.5})
    assert driver.executor.can_launch({"cpu": 0.5})
    driver.launch(resources={"cpu": 0.5})
    assert not driver.executor.can_launch({"cpu": 0.5})
    driver.finish_all()


cloudpickle.register_pickle_by_value(sys.modules[__name__])


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
