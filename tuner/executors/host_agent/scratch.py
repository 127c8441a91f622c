"""Directories that an agent has only while it runs: the trainable, and what trials make with `tempfile`.

It goes with the agent, also when that is killed; when everything on its host is, with the next agent there.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

from trainables.store import fs, owned_directory
from trainables.store.owned_directory import OwnedDirectory
from tuner.executors.host_agent.protocol import OWNER_FILE, Setup

_CLEAN = """
exec 3<&0
{
    read said <&3
    if [ -z "$said" ]; then
        rm -rf -- "$1" "$2"
        sleep 2  # trials are being ended, and may still write
        rm -rf -- "$1" "$2"
    fi
} &
"""


class Cleaner:
    """A process that removes directories when this one is killed.

    It is no child of this one: those are killed with an agent by Ray, which gives nobody the time to clean up. What is
    above them it leaves: the next run may be about to use it.
    """

    def __init__(self, home: Path, temporary: Path) -> None:
        reading, self._writing = os.pipe()
        try:
            subprocess.run(
                ["sh", "-c", _CLEAN, "sh", str(home), str(temporary)],
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
                check=True,
            )
        finally:
            os.close(reading)

    def end(self) -> None:
        """There is nothing to be removed any more."""
        with contextlib.suppress(BrokenPipeError):  # somebody killed it
            os.write(self._writing, b"done\n")
        os.close(self._writing)


def take_temporary(setup: Setup) -> OwnedDirectory | None:
    """Make this host's part of the run's directory for temporary files; None: no directory can be locked there.

    On a disk of its own it is emptied first: the driver could do that on its own only.
    """
    run, driver = setup.temporary.parent, setup.marker.rpartition(".")[0]
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if driver != _owner(run):
            owned_directory.sweep(run)
            for file in run.iterdir():
                if not file.is_dir():
                    file.unlink(missing_ok=True)
    fs.make_dirs(setup.temporary)
    return owned_directory.own(setup.temporary)


def leave_temporary(setup: Setup, owned: OwnedDirectory | None) -> None:
    """Remove it, and above it what nobody else has anything in."""
    if owned is not None:
        owned.remove()
    fs.remove_quietly(setup.temporary)
    run = setup.temporary.parent
    for above in (run, run.parent) if run.parent.name == ".tmp" else (run,):
        with contextlib.suppress(OSError):
            fs.rmdir(above)


def _owner(run: Path) -> str:
    try:
        return (run / OWNER_FILE).read_text()
    except FileNotFoundError:
        return ""
