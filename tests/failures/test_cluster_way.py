"""The way from a node to the driver: slow, or ending with the node (F38)."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from clusters import Run, check_kept, check_whole, until

from tests.servers.cluster import PATIENCE_S, Cluster, RayHost

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]


def named(host: RayHost, *names: str) -> list[int]:
    """Processes of these names there."""
    found = []
    for pid in host.processes():
        with suppress(OSError):  # it has ended
            if Path(f"/proc/{pid}/comm").read_text().strip() in names:
                found.append(pid)
    return found


def test_f38_of_a_node_that_dies_no_more_is_said_than_that(cluster: Cluster) -> None:
    """Its checkpoints are on their way by ssh just then, which ends first."""
    driver, other = cluster.hosts
    run = Run(cluster, x=[1, 2], steps=20, free=1, pause=0.1, size=1_000_000, resources_per_trial={"cpu": 2})
    script = run.start()
    until("both wait", lambda: all(run.starts(x) for x in (1, 2)), of=script)
    (x,) = [x for x in (1, 2) if run.starts(x)[0][1] == "host2"]
    other.slow(20)
    run.go()
    until("some are on their way", lambda: len(run.saved(other, x)) > 2 and named(other, "rsync"), of=script)
    for pid in named(other, "ray::Agent"):
        os.kill(pid, signal.SIGSTOP)
    for pid in named(other, "sshd", "sshd-session", "rsync"):
        with suppress(ProcessLookupError):  # it went with one before it
            os.kill(pid, signal.SIGKILL)
    until("nothing is copied any more", lambda: not named(driver, "rsync"), of=script)
    other.kill()
    output = script.ends(3 * PATIENCE_S)

    check_whole(output, steps=20)
    (said,) = [line for line in output.splitlines() if line.startswith("warning")]
    assert "node host2 (10.77.0.3) is lost" in said


def test_f38_saves_wait_for_a_slow_way_to_the_driver(cluster: Cluster) -> None:
    """1 MB each 0.1 s, of which one is kept, over 20 Mbit/s: a node's disk holds what is on its way, and no more."""
    _, other = cluster.hosts
    run = Run(cluster, x=[1, 2], steps=20, free=1, pause=0.1, size=1_000_000, resources_per_trial={"cpu": 2})
    script = run.start()
    until("both wait", lambda: all(run.starts(x) for x in (1, 2)), of=script)
    (x,) = [x for x in (1, 2) if run.starts(x)[0][1] == "host2"]
    most: set[str] = set()
    other.slow(20)
    try:
        run.go()
        while script.poll() is None:
            most = max(most, set(run.saved(other, x)), key=len)
        output = script.ends(PATIENCE_S)
    finally:
        other.slow(None)
    # Two on their way, one just saved, the one that is kept, and two that are let go of just now.
    assert len(most) <= 6, most
    assert "by rsync over ssh" in output and "engine from here on" not in output
    check_whole(output, steps=20)
    check_kept(run)
