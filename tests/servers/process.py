"""A server of a test's own, in a process of its own, on a free port of 127.0.0.1."""

from __future__ import annotations

import ctypes
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_libc = ctypes.CDLL(None)


@contextmanager
def serving(command: Sequence[str | Path], ready: str) -> Iterator[re.Match[str]]:
    """Start a server, wait for the line of its output that matches `ready`, and end it afterwards.

    It ends with this process too, also when that is killed.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: _libc.prctl(1, signal.SIGKILL),  # PR_SET_PDEATHSIG
    )
    assert process.stdout is not None
    try:
        said = []
        for line in process.stdout:
            said.append(line)
            if found := re.search(ready, line):
                break
        else:
            raise AssertionError(f"{command[0]} ended: {''.join(said)}")
        reader = threading.Thread(target=process.stdout.read, daemon=True)  # or it would stop at a full pipe
        reader.start()
        yield found
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join()
        process.stdout.close()
