"""The agent of a node: a Ray actor that holds a local executor and the store of its host."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import cloudpickle
import msgspec

from trainables import owned_directory
from trainables.errors import CheckpointCorruptError, CheckpointNotFoundError, LimitError
from trainables.job import Job
from trainables.owned_directory import OwnedDirectory
from trainables.starting import start_thread
from trainables.store import delete, fs, verify
from trainables.threads import Threads
from trainables.transfer.client import ProcessClient
from trainables.transfer.transfer_jobs import decode_job
from trainables.wire import CheckpointRef, SavePublished
from tuner.executors.base import Event, Exited, Launch, Message
from tuner.executors.local.executor import LocalExecutor
from tuner.executors.local.pickled import TrainableFile
from tuner.executors.local.process_tree import end_marked
from tuner.executors.local.server import MARKER
from tuner.executors.ray import sources
from tuner.executors.ray.cleanup import Cleaner, leave_temporary, take_temporary
from tuner.executors.ray.connection import own_address as ray_ip
from tuner.executors.ray.engine_files import Files
from tuner.executors.ray.line import Address, AgentLine, open_door
from tuner.executors.ray.protocol import (
    HEARTBEAT_S,
    RESTORED,
    SILENT_S,
    Broken,
    Heard,
    Kill,
    Looked,
    Order,
    Output,
    Setup,
    Tell,
    pack_heard,
    unpack_orders,
)
from tuner.executors.remote_hosts import ExperimentPlace, Uploading
from tuner.experiment.paths import ExperimentPaths

log = logging.getLogger(__name__)

_THREADS = 32
"""So many operations on files at once: one that hangs keeps no other from being done."""
_BEGIN_S = 5.0
"""So long the end waits for a beginning that hangs."""
_IDLE_S = 120.0
"""So long an agent without trials waits for a word of its driver."""
_PLENTY = 1_000_000.0
"""What a trial may take was leased from Ray; the executor on the node counts nothing."""


class Agent:
    """One per node and run. Its methods are what the driver calls."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_default_executor(Threads(_THREADS, thread_name_prefix="tuner-agent"))
        self._heard: list[Heard] = []
        self._something = asyncio.Event()
        self._runner: Runner | None = None
        self._begun = asyncio.Event()
        self._next = 1
        self._early: dict[int, list[Order]] = {}
        self._line: AgentLine | None = None
        self._home: OwnedDirectory | None = None
        self._cleaner: Cleaner | None = None
        self._files: Files | None = None
        self._uploads: ProcessClient | None = None
        self._timeout_s = 0.0
        self._uploading = b""
        self._opening, self._beginning = threading.Lock(), threading.Lock()
        self._root: Path | None = None
        self._ended = False
        self._alive_at = time.monotonic()
        # A thread of its own: whatever else hangs here, trials end when their driver is gone.
        start_thread(self._watch_driver, name="tuner-watch")

    async def look(self, place: ExperimentPlace, marker: str, busy: frozenset[str]) -> Looked:
        """End what is left of older owners, and of an agent with the same mark; say what lies here.

        `busy`: directories of trials that run elsewhere just now, which this host may see.
        """
        return await asyncio.to_thread(self._look, place, marker, busy)

    async def begin(self, setup: Setup, pickled: bytes, modules: bytes) -> Address:
        """Get ready to run trials; returns where the driver may connect to this."""
        await asyncio.to_thread(self._begin, setup, pickled, modules)
        self._begun.set()
        return open_door(ray_ip(), self._met)

    async def orders(self, number: int, data: bytes) -> None:
        """Take a batch of orders; numbers say in which order they were sent."""
        await self._begun.wait()
        self._early[number] = unpack_orders(data)
        while (batch := self._early.pop(self._next, None)) is not None:
            self._next += 1
            assert self._runner is not None
            self._runner.order(batch)

    async def events(self) -> bytes:
        """What happened since the last call; waits until something has."""
        await self._something.wait()
        heard, self._heard = self._heard, []
        self._something.clear()
        return pack_heard(heard)

    async def alive(self) -> None:
        """The driver lives."""
        self._alive_at = time.monotonic()

    async def files(self, what: str, *arguments: Any) -> Any:
        """One operation on the files of this host, see `Files`."""
        assert self._files is not None
        return await asyncio.to_thread(getattr(self._files, what), *arguments)

    async def open_uploads(self, uploading: bytes) -> None:
        """Open the place to which checkpoints go from here. Raises what says why it cannot be used."""
        await asyncio.to_thread(self._open_uploads, uploading)

    async def upload(self, job: bytes) -> bytes:
        """One job of a replica on the files of this host; its answer."""
        if self._uploads is None:
            await self._begun.wait()  # a host that joins is told with that where copies lie
        return await asyncio.to_thread(self._upload, job)

    async def check(self, path: Path, digest: str) -> str | None:
        """Hash a checkpoint; what is wrong with it, and "" where there is none."""
        return await asyncio.to_thread(_check, path, digest)

    async def delete(self, path: Path) -> bool:
        """Delete a checkpoint; False: it is open here and was left alone."""
        return await asyncio.to_thread(delete.delete, path)

    async def end(self) -> None:
        """End every trial; when it returns no process of them is left."""
        await asyncio.to_thread(self._end_in_order)

    # --- within -----------------------------------------------------------------------------------------

    def _look(self, place: ExperimentPlace, marker: str, busy: frozenset[str]) -> Looked:
        for id in (*place.older, marker):
            end_marked(MARKER, id)
        root, name = place.root, socket.gethostname()
        self._root, self._files = root, Files(root)
        try:
            shared = place.id in place.record.read_text()
        except OSError:
            shared = False
        try:
            fs.make_dirs(root)
            with tempfile.TemporaryFile(dir=root):
                pass
        except OSError as error:
            return Looked(name, shared, problem=f"{root} cannot be written there: {error.strerror or error}")
        if shared:
            return Looked(name, True)
        if (other := _experiment_at(root)) not in (None, place.experiment):
            return Looked(name, False, problem=f"another experiment (id {other}) lies at {root} there")
        fs.remove_quietly(root / RESTORED)
        found = []
        for directory in sorted(root.iterdir()):
            if directory.is_dir() and not directory.name.startswith("."):
                if directory.name not in busy:
                    for left in verify.leftovers(directory):
                        fs.remove_quietly(left)
                    delete.finish_deletes(directory)
                found += [(directory.name, kept.ref, kept.digest) for kept in verify.list_checkpoints(directory)]
        return Looked(name, False, found)

    def _begin(self, setup: Setup, pickled: bytes, modules: bytes) -> None:
        with self._beginning:
            if self._ended:
                return  # the run was over before it could
            self._uploading = setup.uploading
            self._home = owned_directory.make(owned_directory.AGENT_PREFIX)
            home = self._home.path
            trainable = home / "trainable.pickle"
            trainable.write_bytes(pickled)
            if modules:
                sources.unpack(modules, home / "modules")
                sys.path.insert(0, str(home / "modules"))
            with contextlib.suppress(OSError):
                os.chdir(setup.cwd if setup.cwd.is_dir() else home)
            self._alive_at = time.monotonic()  # it has just called
            self._cleaner = Cleaner(home, setup.temporary)
            self._runner = Runner(TrainableFile(trainable, setup.imports), setup, self._tell)
            self._runner.start()

    def _open_uploads(self, uploading: bytes) -> None:
        with self._opening:
            if self._uploads is None:
                meant: Uploading = cloudpickle.loads(uploading)
                self._timeout_s = meant.timeout_s
                self._uploads = ProcessClient(meant.arguments)

    def _upload(self, job: bytes) -> bytes:
        self._open_uploads(self._uploading)
        assert self._uploads is not None
        return msgspec.json.encode(self._uploads.do(decode_job(job), timeout_s=self._timeout_s))

    def _met(self, line: AgentLine) -> None:
        """The driver has connected; from then on both sides use the line."""
        runner = self._runner
        assert runner is not None
        self._line = line
        runner.adopt(line, self._line_ended)

    def _line_ended(self) -> None:
        """The driver is gone, or the way to it: it takes this host for lost, and so must we. In the runner's thread."""

        def end() -> None:
            try:
                self._end()
            finally:
                os._exit(1)

        if not self._ended:
            try:
                start_thread(end, name="tuner-end")
            except LimitError:
                end()  # at once then: this process goes

    def _tell(self, heard: Sequence[Heard]) -> None:
        """From the runner's thread."""
        if self._line is None:
            self._loop.call_soon_threadsafe(self._hear, list(heard))
            return
        with contextlib.suppress(OSError):  # its end is told by itself
            self._line.send(pack_heard(heard))
        if not self._ended:
            self._line.wait_for_room()  # trials that write more than the driver reads wait for it

    def _hear(self, heard: list[Heard]) -> None:
        self._heard += heard
        self._something.set()

    def _watch_driver(self) -> None:
        # Before it has begun no trial runs here that nobody may know of, and starting may take long.
        while time.monotonic() - self._alive_at < (_IDLE_S if self._runner is None else SILENT_S):
            time.sleep(HEARTBEAT_S / 2)
        try:
            self._end()
        finally:
            os._exit(1)

    def _end_in_order(self) -> None:
        self._ended = True
        self._end()
        if self._runner is not None:
            self._runner.tidy()
        if self._root is not None:
            fs.remove_quietly(self._root / RESTORED)

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


class Runner(threading.Thread):
    """The thread that a local executor belongs to: orders go in, events come out."""

    def __init__(self, trainable: TrainableFile, setup: Setup, tell: Callable[[Sequence[Heard]], None]) -> None:
        super().__init__(name="tuner-runner", daemon=True)
        self._executor = _Executor(tell)
        self._trainable, self._setup, self._tell = trainable, setup, tell
        self._ending = False
        self._jobs: dict[str, Job] = {}
        self._directories: set[Path] = set()
        self._told: defaultdict[str, set[CheckpointRef]] = defaultdict(set)
        """Checkpoints of attempts that run, told to the driver."""

    def order(self, orders: list[Order]) -> None:
        """From another thread."""
        self._executor.reactor.call_soon(lambda events: self._carry_out_all(orders))

    def adopt(self, line: AgentLine, ended: Callable[[], None]) -> None:
        """Take orders from there from now on; from another thread."""
        reactor = self._executor.reactor

        def ready(events: list[Event]) -> None:
            batches = line.receive()
            if batches is None:
                reactor.forget(line.fileno())
                ended()
            for batch in batches or ():
                self._carry_out_all(unpack_orders(batch))

        reactor.call_soon(lambda events: reactor.watch(line.fileno(), ready))

    def end(self) -> None:
        """End all; from another thread."""
        self._ending = True
        self._executor.wake()
        self.join()

    def tidy(self) -> None:
        """Remove what attempts that have ended were about to save."""
        for directory in set() if self._setup.shared else self._directories:
            for left in verify.leftovers(directory):
                fs.remove_quietly(left)

    def run(self) -> None:
        try:
            self._run()
        except Exception as error:  # whatever it is: the driver waits for a word
            log.exception("no trial can run here any more")
            try:
                self._tell([Broken(f"{type(error).__name__}: {error}")])
            except Exception:
                os._exit(1)  # Ray tells it then

    def _run(self) -> None:
        executor = self._executor
        temporary = take_temporary(self._setup)
        executor.start_written(self._trainable, marker=self._setup.marker)
        try:
            while not self._ending:
                executor.run_once(self._heard, None)
        finally:
            executor.shutdown()
            leave_temporary(self._setup, temporary)

    def _heard(self, events: Sequence[Event]) -> None:
        heard: list[Heard] = []
        for event in events:
            if isinstance(event, Exited):
                heard += self._untold(event)
            elif isinstance(event, Message) and isinstance(event.body, SavePublished):
                self._told[event.trial_id].add(event.body.ref)
            heard.append(event)
        self._tell(heard)

    def _untold(self, exited: Exited) -> list[Message]:
        """What a process that died had published and not told."""
        job, told = self._jobs.pop(exited.trial_id), self._told.pop(exited.trial_id, set())
        if exited.status == 0:
            return []
        return [
            Message(job.trial_id, job.attempt, SavePublished(kept.ref, kept.manifest.bytes, kept.digest))
            for kept in verify.list_checkpoints(job.directory)
            if (kept.ref.trial_id, kept.ref.generation, kept.ref.attempt) == (job.trial_id, job.generation, job.attempt)
            and kept.ref not in told
        ]

    def _carry_out_all(self, orders: Sequence[Order]) -> None:
        for order in orders:
            self._carry_out(order)

    def _carry_out(self, order: Order) -> None:
        if isinstance(order, Tell):
            self._executor.tell(order.trial_id, order.message)
        elif isinstance(order, Kill):
            self._executor.kill(order.trial_id)
        else:
            fs.make_dirs(order.job.directory)
            if not self._setup.shared:  # there the driver does it
                # Now, and not when an attempt has ended: another host may see the directory, and run the next there.
                for left in verify.leftovers(order.job.directory):
                    fs.remove_quietly(left)
            self._directories.add(order.job.directory)
            self._jobs[order.job.trial_id] = order.job
            self._executor.launch(order)


class _Executor(LocalExecutor):
    """A local executor that hands out what was leased elsewhere, and shows output to the driver."""

    def __init__(self, tell: Callable[[Sequence[Heard]], None]) -> None:
        super().__init__(cpus=_PLENTY, gpus=0)
        self._tell_driver = tell

    def shown(self, launch: Launch, name: Literal["stdout", "stderr"]) -> _Echo:
        return _Echo(launch, name, self._tell_driver)


class _Echo:
    """Sends what a trial writes to the driver, whose directory has the file that people read."""

    def __init__(
        self, launch: Launch, name: Literal["stdout", "stderr"], tell: Callable[[Sequence[Heard]], None]
    ) -> None:
        self._launch, self._name, self._tell = launch, name, tell

    def write(self, text: str) -> None:
        self._tell([Output(self._launch.job.trial_id, self._launch.job.attempt, self._name, text)])

    def flush(self) -> None:
        """Sent already."""


def _experiment_at(root: Path) -> str | None:
    """The id of the experiment whose driver wrote there."""
    try:
        return str(json.loads(ExperimentPaths(root).experiment_json.read_bytes())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _check(path: Path, digest: str) -> str | None:
    if not fs.is_dir(path):
        return ""
    try:
        verify.check(path, digest=digest or None)
    except (CheckpointCorruptError, CheckpointNotFoundError) as error:  # another one says nothing of the checkpoint
        with contextlib.suppress(OSError):  # gone, or on a disk that takes nothing
            verify.quarantine(path)
        return str(error)
    return None
