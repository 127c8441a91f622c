"""What a killed driver or agent leaves on the hosts: nothing, once the agents have ended and the next start is over."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from clusters import Run, check_kept, check_whole, found, started, until

from tests.servers.cluster import PATIENCE_S, RESULTS, Cluster, RayHost

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]
BOTH = (1, 2)


def temporary(host: RayHost) -> set[str]:
    """What lies in a host's /tmp that is not Ray's own, and below the results that is neither a trial's nor a book."""
    found = {str(path.relative_to(host.path("/"))) for path in host.path("/tmp").iterdir() if path.name != "ray"}
    place = host.path(RESULTS)
    return found | {f"results/{path.relative_to(place)}" for path in _hidden(place)}


def _files_of(host: RayHost) -> set[str]:
    """The same without directories below the results that are empty."""
    return {name for name in temporary(host) if not name.startswith("results/.tmp")} | {
        str(path) for path in host.path(f"{RESULTS}/.tmp").rglob("*") if not path.is_dir()
    }


def _hidden(place: Path) -> list[Path]:
    found = []
    for directory, names, files in os.walk(place):
        dotted = [Path(directory, name) for name in (*names, *files) if name.startswith(".")]
        found += [path for path in dotted if path.name not in (".manifest.json", ".index", ".lock")]
    return found


def agents(host: RayHost) -> list[int]:
    found = []
    for pid in host.processes():
        try:
            if b"ray::Agent" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except OSError:
            continue  # it has ended
    return found


@pytest.mark.parametrize("victim", ["driver", "all", pytest.param("agent", marks=pytest.mark.soak)])
def test_r10_nothing_of_a_killed_run_stays_on_the_hosts(cluster: Cluster, victim: str) -> None:
    driver, other = cluster.hosts
    before = {host.hostname: temporary(host) for host in cluster.hosts}
    run, script = started(cluster)
    assert any(name.startswith("tmp/tuner-agent-") for name in temporary(other) - before["host2"])
    if victim == "all":  # what would clean up too, and at once
        for host in cluster.hosts:
            for pid in (*agents(host), *run.processes(host)):
                with suppress(ProcessLookupError):  # it went with one before it
                    os.kill(pid, signal.SIGKILL)
    elif victim == "agent":
        for pid in agents(other):
            os.kill(pid, signal.SIGKILL)
        until("the fork server cleans up", lambda: len(run.starts(1)) + len(run.starts(2)) == 3, of=script)
    script.close()
    for host in cluster.hosts:
        until("no agent is left", lambda host=host: not agents(host) and not run.processes(host))  # type: ignore[misc]
    if victim != "all":
        until("its files are gone", lambda: not _files_of(other) - before["host2"])

    run.go()
    check_whole(run.start().ends(3 * PATIENCE_S))
    check_kept(run)
    for host in cluster.hosts:
        left = temporary(host) - before[host.hostname]
        assert not left, left


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(8))
def test_r10_whoever_is_killed_and_whenever_nothing_stays_after_the_next_end(cluster: Cluster, seed: int) -> None:
    dice = random.Random(seed)
    before = {host.hostname: temporary(host) for host in cluster.hosts}
    run = Run(cluster, x=[1, 2, 3, 4], steps=40, free=40, pause=0.05, size=200_000, max_failures=-1)
    script = run.start()
    for _ in range(6):
        time.sleep(dice.uniform(0, 4))  # in any phase: a start takes 3 s, the run about as long
        if script.poll() is not None:
            break
        host = dice.choice(cluster.hosts)
        victims = {
            "driver": [script.pid],
            "agent": agents(host),
            "ssh": [pid for pid in host.processes() if _name(pid) in ("ssh", "rsync")],
            "server": run.processes(host)[:1],
            "all": [script.pid, *agents(host), *run.processes(host)],
        }[dice.choice(["driver", "agent", "ssh", "server", "all"])]
        for pid in victims:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if script.pid in victims:
            script.close()
            script = run.start()
    check_whole_but_failures(script.ends(5 * PATIENCE_S))
    check_kept(run)
    for host in cluster.hosts:
        assert run.processes(host) == []
        until("nothing is left", lambda host=host: not temporary(host) - before[host.hostname])  # type: ignore[misc]


def check_whole_but_failures(output: str) -> None:
    for trial in found(output).values():
        assert (trial["status"], trial["i"]) == ("TERMINATED", list(range(1, 41))), output


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""  # it has ended
