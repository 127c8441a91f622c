"""The jobs of a run in Slurm's queue: submitted, looked after, and cancelled; what Slurm is asked takes its time."""

from __future__ import annotations

import logging
import math
import os
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from trainables.starting import start_thread
from tuner.error import SettingError, SlurmSilentError, TuneError
from tuner.executors.base import Event
from tuner.executors.reactor import Reactor
from tuner.executors.slurm import commands
from tuner.executors.slurm.commands import QueuedJob
from tuner.executors.slurm.meeting import UNSEEN

log = logging.getLogger(__name__)

_LOOK_S = 3.0
"""So often Slurm is asked for jobs that are not there yet, or have lost their agents."""
_SELDOM_S = 10.0
"""So often for others: one that is to be preempted has another end in the queue, and hears nothing before that."""
_ORPHANED_S = 30.0
"""So long a job that runs may have no agent."""
_YOUNG_S = 10.0
"""So long a job that was submitted may be unknown to the queue."""
_USELESS = 3
"""So many jobs in a row may end before an agent of theirs has come."""
_PAUSE_S = 30.0
"""So long none is submitted where the last ones were of no use, and others work."""


@dataclass(eq=False)
class SlurmJob:
    """One that is in the queue, or runs."""

    id: str
    since: float
    nodes: dict[str, None] = field(default_factory=dict)
    """Of its agents that are there."""
    came: bool = False
    """An agent of it was there."""
    gone_since: float | None = None
    """When it lost its last agent."""
    output: Path | None = None


@dataclass(frozen=True)
class JobRequest:
    """What is to be submitted."""

    script: str
    count: int
    output: Path
    """Where the jobs write, with %A_%a for the id in an array, and %j for others."""


@dataclass(frozen=True)
class JobBook:
    """What is written down of jobs, for people, and how a later driver finds them.

    Args:
        path: of the file.
        name: that this driver's jobs have.
        older: names of jobs that it has taken over.
    """

    path: Path
    generation: int
    name: str
    older: list[str] = field(default_factory=list)

    @property
    def names(self) -> str:
        """All of them, as Slurm's commands take them."""
        return ",".join([self.name, *self.older])

    def add(self, ids: Sequence[str]) -> None:
        """They are this driver's."""
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write("".join(f"{self.generation} {id}\n" for id in ids))


@dataclass
class JobLuck:
    """How jobs have fared."""

    worked: bool = False
    """An agent has come in this run: what is refused now is no mistake in its settings."""
    useless: int = 0
    """So many in a row ended before an agent had come."""
    paused_until: float = -math.inf
    """None is submitted before that."""


class JobQueue:
    """It belongs to the driver's thread; Slurm's commands run in another one.

    Args:
        array: jobs that are submitted together are one array.
        ends: called with what Slurm says of the jobs that there are.
    """

    def __init__(
        self, reactor: Reactor, book: JobBook, *, array: bool, seen: Callable[[Mapping[str, QueuedJob]], None]
    ) -> None:
        self._reactor, self.book, self._array, self._seen = reactor, book, array, seen
        self.by_id: dict[str, SlurmJob] = {}
        self.submitting = 0
        """Jobs that sbatch is about to be asked for, or is being asked for."""
        self._cancelled: set[str] = set()
        self._luck = JobLuck()
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._ended = False
        self._look_at = 0.0
        self._looking = False
        self.why = ""
        """Why jobs wait, as Slurm says."""
        self._thread = start_thread(self._work, name="tuner-slurm")

    def __len__(self) -> int:
        return len(self.by_id) + self.submitting

    @property
    def awaited(self) -> int:
        """How many are to come up still."""
        return self.submitting + sum(not job.nodes for job in self.by_id.values())

    @property
    def paused_s(self) -> float:
        """So long nothing is to be submitted."""
        return max(0.0, self._luck.paused_until - time.monotonic())

    def submit(self, request: JobRequest) -> None:
        """Have so many jobs submitted; a refusal is raised in the driver's thread."""
        self.submitting += request.count
        self._tasks.put(partial(self._submit, request))

    def adopt(self, ids: Sequence[str]) -> None:
        """These are of an older driver, and their agents come to this one."""
        now = time.monotonic()
        for id in ids:
            self.by_id[id] = SlurmJob(id, now, came=True, gone_since=now)
        self.book.add(ids)

    def met(self, id: str, node: str) -> bool:
        """An agent has come; False: its job was cancelled."""
        if id in self._cancelled or self._ended:
            return False
        job = self.by_id.setdefault(id, SlurmJob(id, time.monotonic()))
        job.nodes[node] = None
        job.came, job.gone_since, self._luck.useless, self._luck.worked = True, None, 0, True
        return True

    def lost(self, id: str, node: str) -> None:
        """An agent is gone."""
        if (job := self.by_id.get(id)) is not None:
            job.nodes.pop(node, None)
            if not job.nodes:
                job.gone_since = time.monotonic()
            self._look_at = 0.0

    def cancel(self, ids: Sequence[str]) -> None:
        """They are not needed any more."""
        for id in ids:
            self._cancelled.add(id)
            self.by_id.pop(id, None)
        if ids:
            self._tasks.put(partial(self._cancel, list(ids)))

    def cancel_awaited(self) -> None:
        """Nobody waits for those that have not begun."""
        self.cancel([id for id, job in self.by_id.items() if not job.came])

    def look(self, *, now: bool = False) -> float:
        """Ask Slurm for them when it is time, or now; in how many seconds the next time is."""
        if now:
            self._look_at = 0.0
        left = self._look_at - time.monotonic()
        if left > 0 or self._looking or not self.by_id or self._ended:
            return max(left, _LOOK_S if self._looking else 0.0)
        self._looking, seldom = True, all(job.nodes for job in self.by_id.values())
        wait_s = _SELDOM_S if seldom else _LOOK_S
        self._look_at = time.monotonic() + wait_s
        self._tasks.put(self._look)
        return wait_s

    def close(self, *, keep: bool = False) -> None:
        """Cancel all of them, or those that have not begun; returns when Slurm was told."""
        if self._ended:
            return
        self.cancel([id for id, job in self.by_id.items() if not keep or not job.nodes])
        self._ended = True
        self._tasks.put(None)
        self._thread.join()
        if not keep:  # one may have been submitted without that we were told
            self._cancel([])

    # --- in the thread ------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task()
            except Exception as error:  # whatever it is: the run ends by it, or somebody waits for ever
                self._reactor.call_soon(partial(self._failed, error))

    def _submit(self, request: JobRequest) -> None:
        ids: list[str] = []
        if self._ended:
            return
        try:
            if self._array and request.count > 1:
                ids = commands.submit(request.script, count=request.count)
            else:
                for _ in range(request.count):
                    ids += commands.submit(request.script)
        except SettingError as error:
            if not self._luck.worked:
                raise
            self._reactor.call_soon(partial(self._pause, str(error)))  # a partition is drained, a limit of jobs reached
        finally:
            self.book.add(ids)
            self._reactor.call_soon(lambda events: self._submitted(request, ids))

    def _cancel(self, ids: Sequence[str]) -> None:
        """These, or all that have this driver's name."""
        try:
            commands.cancel(ids) if ids else commands.cancel_named(self.book.name, patience_s=10.0)
        except TuneError as error:  # agents end by themselves, and jobs that find no driver
            log.warning("jobs may be in the queue still: %s", error)

    def _look(self) -> None:
        there = commands.queue(self.book.names)
        how = {id: commands.ended(id) for id in list(self.by_id) if id not in there}
        self._reactor.call_soon(lambda events: self._looked(there, how))

    # --- and what it found ----------------------------------------------------------------------------------

    def _failed(self, error: Exception, events: list[Event]) -> None:
        self._looking = False
        if isinstance(error, SlurmSilentError):
            log.warning("%s; what runs goes on", error)
            return
        raise error if isinstance(error, TuneError) else TuneError(f"Slurm: {error}")

    def _submitted(self, request: JobRequest, ids: Sequence[str]) -> None:
        self.submitting -= request.count
        for id in ids:
            if id not in self._cancelled:
                self.by_id.setdefault(id, SlurmJob(id, time.monotonic())).output = request.output

    def _looked(self, there: Mapping[str, QueuedJob], how: Mapping[str, tuple[str, int] | None]) -> None:
        self._looking = False
        now = time.monotonic()
        waiting = [job for job in there.values() if job.state == "PENDING"]
        self.why = ", ".join(sorted({job.never or job.reason for job in waiting}))
        self._seen(there)
        for id, ended in how.items():
            job = self.by_id.get(id)
            if job is None or job.nodes or (ended is None and now - job.since < _YOUNG_S):
                continue
            del self.by_id[id]
            if not job.came:
                self._came_never(job, *(ended or ("gone", 0)))
        for id in [id for id in self.by_id if id in there]:
            job = self.by_id[id]
            if there[id].state == "PENDING" and job.came and not job.nodes:
                job.came, job.gone_since, job.since = False, None, now  # requeued: it comes again
            elif job.gone_since is not None and now - job.gone_since > _ORPHANED_S:
                log.warning("job %s has lost its agent, and is cancelled", id)
                self.cancel([id])

    def _came_never(self, job: SlurmJob, state: str, status: int) -> None:
        """A job has ended before an agent of it was there. Raises TuneError when that is not worth another try."""
        if state == "CANCELLED":
            log.warning("job %s was cancelled before it began", job.id)
            return
        self._luck.useless += 1
        others = any(each.nodes for each in self.by_id.values())  # then a node is broken, and not the run
        if status == UNSEEN:
            text = (
                f"job {job.id} does not see {self.book.path.parent}: choose a storage_path that every node of the "
                "partition sees at the same path"
            )
        else:
            text = f"job {job.id} ended ({state}, exit status {status}) before its agent had come; {_written(job)}"
        if not others and status == UNSEEN and not self._luck.worked:
            raise TuneError(text)
        if self._luck.useless < _USELESS:
            log.warning("%s", text)
        elif others:
            self._pause(f"{text}. {_USELESS} in a row did", [])
        else:
            raise TuneError(f"{text}. {_USELESS} in a row did")

    def _pause(self, why: str, events: list[Event]) -> None:
        """Submit nothing for a while: what runs goes on."""
        log.warning("%s; the next job is submitted in %.0f s", why, _PAUSE_S)
        self._luck.useless, self._luck.paused_until = 0, time.monotonic() + _PAUSE_S


def _written(job: SlurmJob) -> str:
    """The last of what a job has written, in words."""
    if job.output is None:
        return "where it writes is not known"
    path = Path(str(job.output).replace("%A_%a", job.id).replace("%j", job.id))
    try:
        lines = path.read_text("utf-8", "replace").strip().splitlines()[-3:]
    except OSError:
        return f"there is no {path}: perhaps its node does not see that directory"
    return f"{path} ends with: {' / '.join(lines)}" if lines else f"{path} is empty"
