"""A process beside the driver that cancels its jobs when it dies: agents hear so themselves, jobs that wait do not."""

from __future__ import annotations

import contextlib
import os
import subprocess

from trainables.starting import start_process

_WATCH = """
trap '' HUP INT TERM
read said
if [ -z "$said" ]; then
    for pause in 0 3 10 20; do  # a job may be about to be submitted, and the controller may not answer
        sleep $pause
        scancel --quiet --name="$1" --user="$2"
    done
fi
"""


class Watchdog:
    """It lives until `end`, or until this process has died and the jobs of that name are cancelled."""

    def __init__(self, name: str) -> None:
        reading, self._writing = os.pipe()
        try:
            self._process = start_process(
                ["sh", "-c", _WATCH, "sh", name, str(os.geteuid())],
                what="the watchdog of the jobs",
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        finally:
            os.close(reading)

    def end(self) -> None:
        """There is nothing to be cancelled any more."""
        with contextlib.suppress(BrokenPipeError):  # somebody killed it
            os.write(self._writing, b"done\n")
        os.close(self._writing)
        self._process.wait()
