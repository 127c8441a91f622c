"""The agent of a machine: runs trials for a driver elsewhere, and does what that asks of the machine's disk."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec

from trainables.errors import LimitError
from trainables.starting import start_thread
from trainables.store import delete, fs, owned_directory
from trainables.store.owned_directory import OwnedDirectory
from trainables.transfer.client import ProcessClient
from trainables.transfer.transfer_jobs import decode_job
from tuner.executors.host_agent import host_survey, protocol, user_modules
from tuner.executors.host_agent.engine_files import Files
from tuner.executors.host_agent.line import Address, AgentLine, open_door
from tuner.executors.host_agent.runner import Runner
from tuner.executors.host_agent.scratch import Cleaner
from tuner.executors.local.pickled import TrainableFile
from tuner.executors.local.process_tree import end_marked
from tuner.executors.local.server import MARKER
from tuner.executors.remote_hosts import ExperimentPlace, Uploading

_BEGIN_S = 5.0
"""So long the end waits for a beginning that hangs."""
_IDLE_S = 120.0
"""So long an agent without trials waits for a word of its driver."""


class HostAgent:
    """One per machine and run. Its methods are what the driver calls, each from a thread of its own.

    Args:
        ip: the address at which the driver may connect to this.
        tell: called, from any thread, with what happened while there is no connection.
    """

    def __init__(self, ip: str, tell: Callable[[Sequence[protocol.Heard]], None]) -> None:
        self._ip, self._tell_without_line = ip, tell
        self._runner: Runner | None = None
        self._line: AgentLine | None = None
        self._home: OwnedDirectory | None = None
        self._cleaner: Cleaner | None = None
        self._uploads: ProcessClient | None = None
        self._timeout_s = 0.0
        self._uploading = b""
        self._opening, self._beginning = threading.Lock(), threading.Lock()
        self._root: Path | None = None
        self._files: Files | None = None
        self._ended = False
        self._alive_at = time.monotonic()
        # A thread of its own: whatever else hangs here, trials end when their driver is gone.
        start_thread(self._watch_driver, name="tuner-watch")

    def alive(self) -> None:
        """The driver lives. Never waits."""
        self._alive_at = time.monotonic()

    def look(self, place: ExperimentPlace, marker: str, busy: frozenset[str]) -> protocol.HostSurvey:
        """End what is left of older owners, and of an agent with the same mark; say what lies here.

        `busy`: directories of trials that run elsewhere just now, which this host may see.
        """
        for id in (*place.older, marker):
            end_marked(MARKER, id)
        self._root, self._files = place.root, Files(place.root)
        return host_survey.survey(place, busy)

    def begin(self, setup: protocol.Setup, pickled: bytes, modules: bytes) -> Address:
        """Get ready to run trials; returns where the driver may connect to this."""
        with self._beginning:
            if not self._ended:  # else the run was over before it could
                self._begin(setup, pickled, modules)
        return open_door(self._ip, self._met)

    def order(self, orders: Sequence[protocol.Order]) -> None:
        """Take orders; once it has begun, in the order in which they are to be done."""
        assert self._runner is not None
        self._runner.order(orders)

    def files(self, what: str, *arguments: Any) -> Any:
        """One operation on the files of this host, see `Files`."""
        assert self._files is not None
        return getattr(self._files, what)(*arguments)

    def check(self, path: Path, digest: str) -> str | None:
        """Hash a checkpoint; what is wrong with it, and "" where there is none."""
        return host_survey.check(path, digest)

    def delete(self, path: Path) -> bool:
        """Delete a checkpoint; False: it is open here and was left alone."""
        return delete.delete(path)

    @property
    def uploads(self) -> bool:
        """It knows the place to which checkpoints go from here; one that joins is told with `begin`."""
        return self._uploads is not None

    def open_uploads(self, uploading: bytes) -> None:
        """Open the place to which checkpoints go from here. Raises what says why it cannot be used."""
        with self._opening:
            if self._uploads is None:
                meant: Uploading = cloudpickle.loads(uploading)
                self._timeout_s = meant.timeout_s
                self._uploads = ProcessClient(meant.arguments)

    def upload(self, job: bytes) -> bytes:
        """One job of a replica on the files of this host; its answer."""
        self.open_uploads(self._uploading)
        assert self._uploads is not None
        return msgspec.json.encode(self._uploads.do(decode_job(job), timeout_s=self._timeout_s))

    def end(self) -> None:
        """End every trial; when it returns no process of them is left."""
        self._end()
        if self._runner is not None:
            self._runner.tidy()
        if self._root is not None:
            fs.remove_quietly(self._root / protocol.RESTORED)

    def leave(self) -> None:
        """End everything, and this process: the driver is gone, or the way to it."""
        try:
            self._end()
        finally:
            os._exit(1)

    # --- within -----------------------------------------------------------------------------------------

    def _begin(self, setup: protocol.Setup, pickled: bytes, modules: bytes) -> None:
        self._uploading = setup.uploading
        self._home = owned_directory.make(owned_directory.AGENT_PREFIX)
        home = self._home.path
        trainable = home / "trainable.pickle"
        trainable.write_bytes(pickled)
        if modules:
            user_modules.unpack(modules, home / "modules")
            sys.path.insert(0, str(home / "modules"))
        with contextlib.suppress(OSError):
            os.chdir(setup.cwd if setup.cwd.is_dir() else home)
        self.alive()  # it has just called
        self._cleaner = Cleaner(home, setup.temporary)
        self._runner = Runner(TrainableFile(trainable, setup.imports), setup, self._tell)
        self._runner.start()

    def _met(self, line: AgentLine) -> None:
        """The driver has connected; from then on both sides use the line."""
        assert self._runner is not None
        self._line = line
        self._runner.adopt(line, self._line_ended)

    def _line_ended(self) -> None:
        """The driver is gone, or the way to it: it takes this host for lost, and so must we. In the runner's thread."""
        if not self._ended:
            try:
                start_thread(self.leave, name="tuner-end")
            except LimitError:
                self.leave()  # at once then: this process goes

    def _tell(self, heard: Sequence[protocol.Heard]) -> None:
        """From the runner's thread."""
        if self._line is None:
            self._tell_without_line(heard)
            return
        with contextlib.suppress(OSError):  # its end is told by itself
            self._line.send(protocol.pack_heard(heard))
        if not self._ended:
            self._line.wait_for_room()  # trials that write more than the driver reads wait for it

    def _watch_driver(self) -> None:
        # Before it has begun no trial runs here that nobody may know of, and starting may take long.
        while time.monotonic() - self._alive_at < (_IDLE_S if self._runner is None else protocol.SILENT_S):
            time.sleep(protocol.HEARTBEAT_S / 2)
        self.leave()

    def _end(self) -> None:
        self._ended = True
        if self._line is not None:
            self._line.hurry()  # a driver that is gone, or ends, reads no more
        if self._beginning.acquire(timeout=_BEGIN_S):  # what it makes goes too
            self._beginning.release()
        if self._runner is not None:
            self._runner.end()
        if self._home is not None:
            self._home.remove()
        cleaner, self._cleaner = self._cleaner, None
        if cleaner is not None:
            cleaner.end()
