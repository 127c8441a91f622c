"""The driver's side of the fork server: starting it, talking to it, ending it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from trainables.starting import signal_name, start_process
from tuner import knobs
from tuner.executors.local import forkserver
from tuner.executors.local.changed_globals import ChangedGlobal, changed_globals
from tuner.executors.local.pickled import TrainableFile
from tuner.executors.local.process_tree import end_marked

MARKER = "TUNER_OWNER"
_PATIENCE_S = 10.0


class ForkServer:
    """One life of the fork server process."""

    def __init__(
        self, trainable: TrainableFile, *, worker: str, lock_fds: Sequence[int], marker: str, skip: Sequence[str] = ()
    ) -> None:
        self.marker = marker
        self.changed: list[ChangedGlobal] = []
        """Globals whose change trials may not see."""
        with suppress(Exception):  # advice only: a user object that raises when inspected does not stop the run
            self.changed += changed_globals(trainable.code)
        self.ready = False
        """It has loaded everything, and may have keepers."""
        self.gone = False
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = knobs.environment()
        preloading = forkserver.preloading_environment(environment)
        flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        cwd = os.getcwd()
        init = forkserver.write_init(
            {
                "path": [os.path.join(cwd, entry) for entry in _search_path()],
                "parent": os.getpid(),
                "control": theirs.fileno(),
                "argv": list(sys.argv),
                "flags": flags,
                "worker": worker,
                "modules": [(name, sorted(names)) for name, names in trainable.imports.items()],
                "skip": list(skip),
                "globals": [(each.module, each.name, each.fresh) for each in self.changed],
                "trainable": str(trainable.path),
                "script": trainable.script,
                "environment": {name: environment.get(name) for name in preloading},
            }
        )
        try:
            # Parent-death signals follow the thread that forks. This is the loop's, which lives as long as the run;
            # a server that gets the signal while its parent lives ignores it, and the socket's end comes anyway.
            self.process = start_process(
                [sys.executable, *flags, "-c", forkserver.BOOT.format(fd=init)],
                stdin=subprocess.DEVNULL,
                env={**environment, **preloading, MARKER: marker},
                pass_fds=(theirs.fileno(), init, *lock_fds),
                start_new_session=True,  # Ctrl-C is for the driver alone
                what="the trials",
            )
        except BaseException:
            self.control.close()
            raise
        finally:
            os.close(init)
            theirs.close()
        self.control.setblocking(False)

    @property
    def pid(self) -> int:
        return self.process.pid

    def fork_keeper(self, number: int, end: socket.socket) -> bool:
        """Ask for a keeper that listens at `end`. False if the server is gone."""
        try:
            self.control.setblocking(True)
            socket.send_fds(self.control, [forkserver.NUMBER.pack(b"K", number, 0)], [end.fileno()])
        except ConnectionError:
            return False
        finally:
            self.control.setblocking(False)
        return True

    def receive(self) -> bytes | None:
        """One packet; b"" when the server is gone, None when there is nothing."""
        try:
            return self.control.recv(65536)
        except BlockingIOError:
            return None
        except ConnectionError:
            return b""

    def end(self) -> None:
        """End the server and all that is below it. Returns when nothing is left."""
        self.control.close()
        if not self.ready:
            self.process.kill()  # it may hang in an import; it has no trials yet
        try:
            self.process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.returncode != 0:
            self.sweep()

    def sweep(self) -> None:
        """End what a killed server and killed keepers left, found by the mark in its environment."""
        if self.marker:
            end_marked(MARKER, self.marker)


def _search_path() -> list[str]:
    root = str(Path(__file__).parents[3])
    return sys.path if root in sys.path else [*sys.path, root]


def describe(returncode: int | None) -> str:
    """How a process ended, in words."""
    if returncode is None:
        return "is gone"
    if returncode < 0:
        return f"was ended by {signal_name(-returncode)}"
    return f"exited with status {returncode}"
