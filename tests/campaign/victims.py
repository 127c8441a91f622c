"""Who belongs to an experiment, by a mark in the environment, and who is who by looking at /proc."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from tests.soak.counts import count

MARK = "CAMPAIGN_MARK"


def marked(mark: str) -> dict[int, int]:
    """Pid -> parent of every living process with that mark."""
    wanted, found = f"{MARK}={mark}".encode(), {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if wanted not in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                continue
            fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
        except (OSError, IndexError):
            continue  # it has ended
        if fields[0] not in (b"Z", b"X"):
            found[int(name)] = int(fields[1])
    return found


def roles(driver: int, mark: str) -> dict[str, list[int]]:
    """Role -> pids. A process whose role is not known is in "all" only."""
    parents = marked(mark)

    def children(of: list[int]) -> list[int]:
        return [pid for pid, parent in parents.items() if parent in of]

    below = children([driver])
    uploaders = [pid for pid in below if b"trainables.transfer.agent" in _command(pid)]
    servers = [pid for pid in below if pid not in uploaders]
    keepers = children(servers)
    return {
        "driver": [driver] if driver in parents else [],
        "uploader": uploaders,
        "server": servers,
        "keeper": keepers,
        "trial": children(keepers),
        "all": sorted(parents, key=lambda pid: pid == driver),
    }


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def strike(driver: int, mark: str, victim: str, number: int, rng: random.Random) -> list[int]:
    """Send a signal to one of that role, or to all; returns who got it."""
    found = roles(driver, mark)[victim]
    chosen = found if victim == "all" else [rng.choice(sorted(found))] if found else []
    hit = [pid for pid in chosen if send(pid, number)]
    if hit and number == signal.SIGKILL:
        count(f"kills of {victim}")
    return hit


def send(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def end_all(mark: str) -> None:
    """The machine is gone, and with it all that ran on it."""
    while pids := marked(mark):
        for pid in pids:
            send(pid, signal.SIGKILL)
        time.sleep(0.01)


def survivors(mark: str, within_s: float) -> list[str]:
    """Who is alive still after so long, with what it is."""
    end = time.monotonic() + within_s
    while (pids := marked(mark)) and time.monotonic() < end:
        time.sleep(0.05)
    return [f"{pid} {_command(pid)[:80]!r}" for pid in pids]
