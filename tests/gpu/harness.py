"""What tests of several packages on a GPU use."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

DEVICE = "cuda:0"
BACKEND = "nccl"


def opened_devices(pid: int | str = "self") -> list[str]:
    """The GPU's device files that a process holds open: it has none as long as it has not initialized CUDA."""
    found = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):  # the listing's own
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
            found += [target] if target.startswith("/dev/nvidia") else []
    return found


def without_gpu(code: str, *arguments: object) -> str:
    """What a script prints that sees no GPU."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def asked(what: str) -> list[str]:
    """What nvidia-smi says, a value each."""
    command = ["nvidia-smi", f"--query-{what}", "--format=csv,noheader,nounits"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()


def on_gpu() -> list[int]:
    """The processes that have a context on a GPU."""
    return [int(pid) for pid in asked("compute-apps=pid")]
