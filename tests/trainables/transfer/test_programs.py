"""Programs that back ends run end with the process that waits for them, however that ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

_WAITS = """
import signal, sys
from trainables.transfer import programs
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as an agent does
programs.run(["sh", "-c", "echo $$; exec sleep 600"], watch=lambda text: print(text, end="", flush=True))
"""


def test_a_program_ends_with_a_process_that_is_killed_while_it_waits() -> None:
    with subprocess.Popen([sys.executable, "-c", _WAITS], stdout=subprocess.PIPE, text=True) as waits:
        assert waits.stdout is not None
        pid = int(waits.stdout.readline())
        fd = os.pidfd_open(pid)
        waits.send_signal(signal.SIGKILL)
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        assert poll.poll(30_000), f"process {pid} outlives it"
        os.close(fd)
