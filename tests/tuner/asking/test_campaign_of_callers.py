"""Callers and their driver are killed at random; what happened is judged by the journal alone."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.servers.cluster import RayHost
from tests.tuner.asking.callers import Caller, driver, driver_host, judged, lives, until

AGAIN_S = 0.5


def struck(
    storage: Path,
    *,
    trials: int,
    callers: int,
    seed: int,
    iterations: int,
    every_s: float,
    step_s: float,
    stops: bool,
    hosts: Sequence[RayHost | None] = (None,),
    env: dict[str, str] | None = None,
) -> dict[str, int]:
    """Have all trials trained by callers that are started again when they are killed; how often who was struck.

    Args:
        hosts: where callers run in turn; None: here.
        env: more for the environment of callers.
    """
    dice = random.Random(seed)
    task = {"iterations": iterations, "step_s": step_s, "threads": 1}
    given: dict[str, Any] = {
        "num_samples": trials, "stop": {"training_iteration": iterations} if stops else None, "env": env
    }  # fmt: skip
    started = [
        Caller(storage, host=hosts[i % len(hosts)], **given, work={**task, "threads": 1 + i % 2})
        for i in range(callers)
    ]
    blows = {"driver": 0, "caller": 0}
    at = time.monotonic() + 2 * every_s
    try:
        while any(caller.process.poll() is None for caller in started):
            for i, caller in enumerate(started):
                status = caller.process.poll()
                assert status in (None, 0, -signal.SIGKILL), f"a caller has ended with {status}"
                if status == -signal.SIGKILL:
                    caller.close()
                    started[i] = Caller(storage, host=hosts[i % len(hosts)], **given, work=task)
            if time.monotonic() >= at:
                at = time.monotonic() + every_s * 2 * dice.random()
                behind = min(blows, key=lambda kind: blows[kind])  # each kind gets its share
                victim = dice.choice([behind, behind, "driver", "both"])
                if victim in ("caller", "both"):
                    chosen = dice.choice(started)
                    blows["caller"] += chosen.process.poll() is None
                    chosen.process.kill()
                if victim in ("driver", "both"):
                    struck_one = _strike_driver(storage, hosts)
                    blows["driver"] += struck_one
                    if not struck_one:
                        at = min(at, time.monotonic() + AGAIN_S)  # the next life has not begun
            time.sleep(0.02)
    finally:
        for caller in started:
            caller.process.kill()
            caller.close()
    if None in hosts:
        until(lambda: not lives(storage))
    return blows


def _strike_driver(storage: Path, hosts: Sequence[RayHost | None]) -> bool:
    """SIGKILL; whether there was one."""
    try:
        name = driver_host(storage)
    except FileNotFoundError:
        return False  # none has begun yet
    host = next((host for host in hosts if host is not None and host.hostname == name), None)
    if host is not None:
        return host.popen(["kill", "-9", str(driver(storage))]).wait() == 0
    if not lives(storage):
        return False
    os.kill(driver(storage), signal.SIGKILL)
    return True


@pytest.mark.timeout(300)
def test_each_config_is_finished_once_from_its_newest_checkpoint(tmp_path: Path) -> None:
    blows = struck(tmp_path, trials=20, callers=3, seed=14, iterations=5, every_s=3.0, step_s=0.05, stops=True)
    judged(tmp_path, trials=20, iterations=5)
    print(blows)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(3))
def test_of_two_hundred_trials_none_is_lost_and_none_twice(tmp_path: Path, seed: int) -> None:
    blows = struck(
        tmp_path, trials=200, callers=4, seed=seed, iterations=8, every_s=5.0, step_s=0.3, stops=seed % 2 == 1
    )
    judged(tmp_path, trials=200, iterations=8)
    assert min(blows.values()) > 3, blows
