"""Orders about a trial on another host: what they do there, and that its checkpoints are on the driver's disk."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest
from clusters import Run, found, number_there, until

from tests.servers.cluster import PATIENCE_S, Cluster, Driver
from tuner.orders.giving import give

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]


def ordered(run: Run, script: Driver, trial: int, *bodies: dict[str, Any]) -> list[str]:
    """Have them done; returns what was found."""
    root = run.root(run.cluster.hosts[0])
    orders = [give(root, {"trial": str(trial - 1), **body}, if_dead="wait") for body in bodies]
    until("all are answered", lambda: not {each.state for each in orders} & {"waiting", "taken"}, of=script)
    assert [order.state for order in orders] == ["done"] * len(orders), orders
    return [order.why for order in orders]


def test_a_trial_on_another_host_is_paused_forked_continued_saved_pinned_retried_and_stopped(cluster: Cluster) -> None:
    driver, other = cluster.hosts
    run = Run(cluster, x=[1, 2], steps=500, free=500, pause=0.1, resources_per_trial={"cpu": 2})
    script = run.start()
    until("both train", lambda: all(len(run.saved(driver, x)) for x in (1, 2)), of=script)
    (x,) = [x for x in (1, 2) if run.starts(x)[0][1] == other.hostname]

    note = {"order": "note", "text": "over there"}
    saved, _ = ordered(run, script, x, {"order": "save", "pin": True}, note)
    (found_at,) = ordered(run, script, x, {"order": "pause"})
    paused_at = int(found_at.removeprefix("at iteration "))
    (record,) = [name for name in run.saved(driver, x) if int(name[11:17]) == paused_at]
    assert run.starts(x)[0][2] not in map(number_there, run.processes(other))
    (pinned,) = ordered(run, script, x, {"order": "pin", "iteration": paused_at})
    assert pinned == record
    ordered(run, script, x, {"order": "fork", "iteration": paused_at, "config": {"pause": 0.2}})
    until("its fork trains", lambda: len(run.saved(driver, 101)) > 0, of=script)
    assert run.starts(101)[0][:2] == (paused_at, other.hostname)
    ordered(run, script, 3, {"order": "stop"})
    ordered(run, script, x, {"order": "set", "name": "resources", "value": {"cpu": 1}}, {"order": "go"})
    until("it goes on", lambda: len(run.starts(x)) == 2, of=script)
    first, _, pid = run.starts(x)[1]
    assert first == paused_at

    (process,) = [each for each in run.processes(other) if number_there(each) == pid]
    os.kill(process, signal.SIGKILL)
    root = run.root(driver)
    until("it has failed", lambda: list(root.glob(f"*_{x - 1:05d}/error.txt")), of=script)
    ordered(run, script, x, {"order": "retry"})
    until("it is tried again", lambda: len(run.starts(x)) == 3, of=script)
    assert run.starts(x)[2][0] >= paused_at

    all_of_them = give(root, {"order": "stop", "trial": "all"}, if_dead="wait")
    seen = found(script.ends(2 * PATIENCE_S))
    assert {trial["status"] for trial in seen.values()} == {"TERMINATED"}
    assert all_of_them.state == "done"
    mine = seen[str(x)]
    assert mine["i"] == list(range(1, len(mine["i"]) + 1))
    assert mine["kept"][:2] == [saved, record] and len(mine["kept"]) == 3
    assert json.loads((root / mine["dirname"] / mine["kept"][-1] / ".manifest.json").read_text())["trial_id"]
