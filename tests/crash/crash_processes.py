"""Starts `killed_script.py`, waits for it, and looks whether anything of it is left."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from killed_script import DRIVER

from tuner.experiment.generations import read_records
from tuner.experiment.paths import ExperimentPaths
from tuner.experiment.processes import OWNER_VARIABLE

HERE = Path(__file__).parent
PATIENCE_S = 60.0


def start(
    storage: Path, point: dict[str, Any] | None = None, *arguments: Path, pace: Sequence[float] | None = None
) -> subprocess.Popen[bytes]:
    """Run the script; it, or somebody of its family, is killed at that point. `pace`: see there."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), *sys.path])}
    environment.pop("CRASH", None)
    if point is not None:
        environment["CRASH"] = json.dumps(point)
    if pace is not None:
        environment["PACE"] = json.dumps(pace)
    with open(storage / "output", "ab") as output:
        command = [sys.executable, str(HERE / "killed_script.py"), str(storage), *map(str, arguments)]
        return subprocess.Popen(command, env=environment, stdout=output, stderr=output, cwd=storage)


def wait(process: subprocess.Popen[bytes], storage: Path) -> int:
    """Its exit status."""
    try:
        return process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise AssertionError(f"the driver hangs: {(storage / 'output').read_text()}") from None


def require_gone(storage: Path, within_s: float) -> None:
    """All processes of any generation of the experiment end by themselves, soon."""
    records = read_records(ExperimentPaths(storage / "e"))
    _require_gone({f"{OWNER_VARIABLE}={record.id}".encode() for record in records}, within_s)


def require_family_gone(driver: int, within_s: float) -> None:
    """All that this driver started ends by itself, soon, what copies for it too."""
    _require_gone({f"{DRIVER}={driver}".encode()}, within_s)


def end_family(driver: int) -> None:
    """The machine of that driver is gone, and with it all that it started."""
    for pid in _marked({f"{DRIVER}={driver}".encode()}):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _require_gone(marks: set[bytes], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    for pid in _marked(marks):
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            assert poll.poll(max(0.0, deadline - time.monotonic()) * 1000), f"process {pid} outlives its driver"
        finally:
            os.close(fd)


def _marked(marks: set[bytes]) -> list[int]:
    """Processes that run now and have one of these in their environment."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if not marks.isdisjoint(Path(f"/proc/{name}/environ").read_bytes().split(b"\0")):
                found.append(int(name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found
