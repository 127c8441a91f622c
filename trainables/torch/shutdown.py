"""Orderly shutdown of a rank whose gloo threads may still be at their last operation.

They give up an operation's tensors a moment after the operation has ended for the caller, and need the interpreter for
it. One that asks while Python shuts down is unwound by it, through C++ that does not allow it: the process aborts
("terminate called without an active exception"), and torchrun reports a job as failed that has done all it had to.
`destroy_process_group` does not help: once `DistributedDataParallel` is imported something in torch holds the group.
Seen with torch 2.13, in one script of five that ends right after its last step; pytorch/pytorch#179291 describes it.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

_PATIENCE_S = 1.0  # an operation that hangs, the other rank gone, holds the exit up for this long
_FUTEX = {"202", "98"}  # the system call's number on x86-64 and on ARM64


def wait_for_gloo() -> None:
    """Wait until gloo's threads have come to rest, for a second at most; for `atexit`. Nothing where there are none."""
    end = time.monotonic() + _PATIENCE_S
    while _busy() and time.monotonic() < end:
        time.sleep(0.001)  # which lends them the interpreter


def _busy() -> bool:
    """Whether a thread of gloo's does anything but wait for work: waiting for the interpreter, it has a time limit."""
    for thread in Path("/proc/self/task").glob("*"):  # on other systems there is nothing here
        with contextlib.suppress(OSError):  # it has ended
            if (thread / "comm").read_bytes() != b"pt_gloo_runloop\n":  # a name may be cut inside a character
                continue
            call = (thread / "syscall").read_text().split()  # number and arguments, or "running"
            if not (call[0] in _FUTEX and call[4] == "0x0"):
                return True
    return False
