"""The thread of an agent that its local executor belongs to: orders go in, events come out."""

from __future__ import annotations

import logging
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from trainables.job import Job
from trainables.store import fs, verify
from trainables.wire import CheckpointRef, SavePublished
from tuner.executors.base import Event, Exited, Launch, Message
from tuner.executors.host_agent import protocol
from tuner.executors.host_agent.host_survey import remove_leftovers
from tuner.executors.host_agent.line import AgentLine
from tuner.executors.host_agent.scratch import leave_temporary, take_temporary
from tuner.executors.local.executor import LocalExecutor
from tuner.executors.local.pickled import TrainableFile

log = logging.getLogger(__name__)

Tell = Callable[[Sequence[protocol.Heard]], None]

IDLE_S = 2.0
"""So long a process waits for another attempt (`reuse_actors=True`): what it was leased may be others' by then."""
_PLENTY = 1_000_000.0
"""What a trial may take was leased elsewhere; the executor on the host counts nothing."""


class Runner(threading.Thread):
    """Its methods are called from other threads."""

    def __init__(self, trainable: TrainableFile, setup: protocol.Setup, tell: Tell) -> None:
        super().__init__(name="tuner-runner", daemon=True)
        self._executor = _LeasedExecutor(tell)
        self._trainable, self._setup, self._tell = trainable, setup, tell
        self._ending = False
        self._jobs: dict[str, Job] = {}
        self._directories: set[Path] = set()
        self._told: defaultdict[str, set[CheckpointRef]] = defaultdict(set)
        """Checkpoints of attempts that run, told to the driver."""

    def order(self, orders: Sequence[protocol.Order]) -> None:
        self._executor.reactor.call_soon(lambda events: self._carry_out(orders))

    def adopt(self, line: AgentLine, ended: Callable[[], None]) -> None:
        """Take orders from there from now on."""
        reactor = self._executor.reactor

        def ready(events: list[Event]) -> None:
            batches = line.receive()
            if batches is None:
                reactor.forget(line.fileno())
                ended()
            for batch in batches or ():
                self._carry_out(protocol.unpack_orders(batch))

        reactor.call_soon(lambda events: reactor.watch(line.fileno(), ready))

    def end(self) -> None:
        """End every trial, and this thread."""
        self._ending = True
        self._executor.wake()
        self.join()

    def tidy(self) -> None:
        """Remove what attempts that have ended were about to save."""
        for directory in set() if self._setup.shared else self._directories:
            remove_leftovers(directory)

    def run(self) -> None:
        try:
            self._run()
        except Exception as error:  # whatever it is: the driver waits for a word
            log.exception("no trial can run here any more")
            try:
                self._tell([protocol.HostBroken(f"{type(error).__name__}: {error}")])
            except Exception:
                os._exit(1)  # whoever started the agent tells it then

    def _run(self) -> None:
        executor = self._executor
        temporary = take_temporary(self._setup)
        executor.start_written(self._trainable, marker=self._setup.marker)
        try:
            while not self._ending:
                executor.run_once(self._dispatch, None)
        finally:
            executor.shutdown()
            leave_temporary(self._setup, temporary)

    def _dispatch(self, events: Sequence[Event]) -> None:
        heard: list[protocol.Heard] = []
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

    def _carry_out(self, orders: Sequence[protocol.Order]) -> None:
        for order in orders:
            if isinstance(order, protocol.TellTrial):
                self._executor.tell(order.trial_id, order.message)
            elif isinstance(order, protocol.KillTrial):
                self._executor.kill(order.trial_id)
            else:
                self._launch(order)

    def _launch(self, launch: Launch) -> None:
        job = launch.job
        fs.make_dirs(job.directory)
        if not self._setup.shared:  # there the driver does it
            # Now, and not when an attempt has ended: another host may see the directory, and run the next there.
            remove_leftovers(job.directory)
        self._directories.add(job.directory)
        self._jobs[job.trial_id] = job
        self._executor.launch(launch)


class _LeasedExecutor(LocalExecutor):
    """A local executor that hands out what was leased elsewhere, and shows output to the driver."""

    idle_s = IDLE_S

    def __init__(self, tell: Tell) -> None:
        super().__init__(cpus=_PLENTY, gpus=0)
        self._tell_driver = tell

    def shown(self, launch: Launch, name: Literal["stdout", "stderr"]) -> _DriverSink:
        return _DriverSink(launch, name, self._tell_driver)


class _DriverSink:
    """Sends what a trial writes to the driver, whose directory has the file that people read."""

    def __init__(self, launch: Launch, name: Literal["stdout", "stderr"], tell: Tell) -> None:
        self._launch, self._name, self._tell = launch, name, tell

    def write(self, text: str) -> None:
        self._tell([protocol.TrialOutput(self._launch.job.trial_id, self._launch.job.attempt, self._name, text)])

    def flush(self) -> None:
        """Sent already."""
