"""One run in jobs of Slurm, put together."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle

from trainables.store import fs
from tuner.clock import SystemClock
from tuner.error import SettingError
from tuner.executors.base import Event, Resources
from tuner.executors.host_agent import user_modules
from tuner.executors.host_agent.protocol import OWNER_FILE, Setup
from tuner.executors.local.pickled import write_trainable
from tuner.executors.pool import together
from tuner.executors.remote import groups
from tuner.executors.remote.host import RemoteHost
from tuner.executors.remote.hosts import Found
from tuner.executors.remote.remote_run import RemoteRun
from tuner.executors.remote_hosts import ExperimentPlace
from tuner.executors.slurm import commands
from tuner.executors.slurm.agent_listener import address_of, routing_to
from tuner.executors.slurm.arrivals import Arrivals
from tuner.executors.slurm.batch_options import BatchOptions
from tuner.executors.slurm.commands import QueuedJob
from tuner.executors.slurm.job_queue import JobBook, JobQueue, JobRequest
from tuner.executors.slurm.job_shape import JobShape
from tuner.executors.slurm.meeting import DIRECTORY, Owner, owner_file, write_owner
from tuner.executors.slurm.paces import Paces
from tuner.executors.slurm.rooms import AgentRoom, AgentRooms
from tuner.executors.slurm.scaling import Scaling
from tuner.executors.slurm.watchdog import Watchdog

log = logging.getLogger(__name__)

_OLDER = 1000
"""Of so many drivers before this one jobs are looked for."""

_PATIENCE_S = 60.0
"""With no job for so long, people are told why."""


@dataclass(frozen=True)
class RunSettings:
    """What `SlurmExecutor` was given."""

    options: BatchOptions
    jobs: int
    array: bool
    listen: str | None
    reconnect_s: float


class SlurmRun(RemoteRun):
    """One run.

    Args:
        wait: lets the executor do what there is to do.
        released: called when it is over.
    """

    def __init__(
        self, settings: RunSettings, *, wait: Callable[[float | None], None], released: Callable[[], None]
    ) -> None:
        self.settings, self._released = settings, released
        self._clock = SystemClock()
        self.paces = Paces()
        self.shape = JobShape(settings.options)
        self.rooms = AgentRooms(self.paces.begin_s, self._clock)
        super().__init__(self.rooms, lambda node: self._agents.handles[node], lambda node: False, wait)
        self._agents = Arrivals(self.reactor, self.rooms, found=self._found, lost=self.lost, leaves=self._told_of_end)
        self.jobs: JobQueue | None = None
        self.scaling: Scaling | None = None
        self.stays = False
        """Agents wait for the next driver when this one goes."""
        self._watchdog: Watchdog | None = None
        self._tested = False
        self._waits_since: float | None = None

    # --- before it runs ---------------------------------------------------------------------------------

    def check_fits(self, resources: Resources, trainable: Any) -> None:
        """Also raises SettingError where there is no Slurm, and for jobs that it refuses."""
        meant = groups.meant_by(trainable)
        self.shape.grow(resources, meant)
        nodes = self.settings.jobs * self.settings.options.nodes
        groups.check_fits(resources, [self.shape.node()] * nodes, trainable)
        if not self._tested:
            commands.test(self._script("tuner-test", Path("/dev/null"), Path("/dev/null"), 0))
            self._tested = True

    def expect(self, attempts: float) -> None:
        if self.scaling is not None:
            self.scaling.expected = attempts

    def total(self) -> Resources:
        """What the jobs have that are there, or all of them will have."""
        there = [room.hello.resources for room in self.rooms.by_node.values()]
        return together({}, there or [self.shape.node()] * self.settings.jobs * self.settings.options.nodes)

    def survey(self, place: ExperimentPlace) -> list[Found]:
        """Begin to listen, and end the jobs of older drivers, unless their agents wait for this one."""
        directory, generation = place.root / DIRECTORY, int(place.record.stem)
        with contextlib.suppress(FileExistsError):
            fs.mkdir(directory, 0o700)
        book = JobBook(directory / "jobs", generation, f"tuner-{place.experiment}-{generation}")
        self._script(book.name, directory / "%j.out", owner_file(place.root), generation)  # paths may be refused
        ip = self._address()
        self._watchdog = Watchdog(book.name)
        self.jobs = JobQueue(self.reactor, book, array=self.settings.array, seen=self._seen)
        self.scaling = Scaling(
            self.rooms,
            self.jobs,
            self.shape,
            self.paces,
            self._clock,
            most=self.settings.jobs,
            submit=self._submit,
            cancel=self._cancel,
            leave=self._leave,
        )
        try:
            listener = self._agents.listen(ip, self.hosts, self.jobs)
        except OSError as error:
            raise SettingError(f"listen={self.settings.listen!r}: nobody can listen at {ip}: {error}") from error
        # By name: an id of long ago may be somebody's other job, on another cluster or after Slurm was set up anew.
        names = [f"tuner-{place.experiment}-{number}" for number in range(max(1, generation - _OLDER), generation)]
        earlier, staying = commands.queue(",".join(names)) if names else {}, self._take_staying(directory)
        self.jobs.adopt([id for id in earlier if id in staying])
        if staying:
            book.older.extend(names)
        commands.cancel([id for id in earlier if id not in staying])
        found = self.hosts.survey(place, ())
        write_owner(owner_file(place.root), Owner(generation, listener.ip, listener.port, listener.key))
        return found

    def begin(self, trainable: Any, marker: str, temporary: Path) -> None:
        """Have the agents, most of which come later, get ready for trials of it."""
        with contextlib.suppress(FileExistsError):  # an older owner's agent may have taken it along, empty
            fs.mkdir(temporary, 0o700)
        (temporary / OWNER_FILE).write_text(marker)
        written = write_trainable(trainable, temporary)
        try:
            pickled, modules = written.path.read_bytes(), user_modules.collect()
        finally:
            written.path.unlink(missing_ok=True)
        uploading = b"" if self.upload_to is None else cloudpickle.dumps(self.upload_to)
        self.rooms.meant = groups.meant_by(trainable)
        setup = Setup(written.imports, marker, temporary, Path.cwd(), uploading=uploading)
        self._agents.begin(lambda host: self.hosts.begin(host, setup, pickled, modules))

    # --- while it runs ----------------------------------------------------------------------------------

    def lost(self, host: RemoteHost, events: list[Event]) -> None:
        self._agents.lost(host)
        super().lost(host, events)

    def say_who_waits(self) -> None:
        """Nothing runs, and no job has begun: people should know why nothing happens."""
        if self.attempts or self.jobs is None or not self.jobs.awaited or self.rooms.by_node:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = self._clock.monotonic()
        elif self._clock.monotonic() - self._waits_since > _PATIENCE_S:
            self._waits_since = math.inf
            log.warning("no job has begun yet: %s", self.jobs.why or "Slurm does not say why")

    def _found(self, host: RemoteHost, found: list[Found]) -> None:
        """What lies on the disk of a node that may have been here before: what nobody needs is deleted."""
        for _, dirname, ref, _ in found:
            if not self.keeps(dirname, ref):
                self.drop_later(host, self.root / dirname / ref.name)

    def _told_of_end(self, node: str, now: bool) -> None:
        """Slurm has signalled to an agent that its job is about to end."""
        room = self.rooms.by_node.get(node)
        if room is not None and (now or room.end is None):
            room.ending = now
            self._leave(room, "Slurm ends it")
        elif self.jobs is not None:
            self.jobs.look(now=True)  # its time may have been shortened

    def _seen(self, there: Mapping[str, QueuedJob]) -> None:
        """What Slurm says of the jobs: their time may have been changed."""
        for room in self.rooms.by_node.values():
            job = there.get(room.hello.job)
            if job is not None and job.state == "RUNNING" and job.end_time is not None:
                before, room.queued_end = room.queued_end, job.end_time
                if room.hello.end is None or before not in (None, job.end_time):
                    room.end = job.end_time
                    room.lasts_s = min(room.lasts_s, self.settings.options.seconds or math.inf)

    def _leave(self, room: AgentRoom, why: str) -> None:
        host = self.hosts.by_node.get(room.node)
        if host is None or room.leaving:
            return
        room.leaving = True
        if room.used:
            log.info("job %s on %s: %s: its trials save, and go on elsewhere", room.hello.job, host.name, why)
        self.attempts.halt_on(host)

    def _submit(self, count: int) -> None:
        assert self.jobs is not None
        book = self.jobs.book
        output = book.path.with_name("%A_%a.out" if self.settings.array and count > 1 else "%j.out")
        text = self._script(book.name, output, owner_file(self.root), book.generation)
        self.jobs.submit(JobRequest(text, count, output))

    def _cancel(self, id: str, rooms: list[AgentRoom]) -> None:
        assert self.jobs is not None
        if not any(room.ending for room in rooms):
            self.jobs.cancel([id])
        for room in rooms:
            self._agents.forget(room.node)
            if (host := self.hosts.by_node.get(room.node)) is not None:
                self._carrier.lost(host)
                self.hosts.give_up(host)

    # --- its end ----------------------------------------------------------------------------------------

    def end_trials(self) -> None:
        super().end_trials()
        if self.jobs is not None and not self.stays:
            self.jobs.close()

    def release(self) -> None:
        if self.jobs is not None:
            if self.stays:
                until = self._clock.time() + self.settings.reconnect_s
                _staying(self.jobs.book.path.parent).write_text(" ".join([str(until), *self._agents.stay(until)]))
            self.jobs.close(keep=self.stays)
        self._agents.close()
        self.hosts.release()
        if self._watchdog is not None:
            self._watchdog.end()
        self.jobs = self.scaling = self._watchdog = None
        self._released()

    # --- within -----------------------------------------------------------------------------------------

    def _take_staying(self, directory: Path) -> set[str]:
        """The jobs whose agents wait for this driver."""
        try:
            until, *ids = _staying(directory).read_text().split()
            _staying(directory).unlink()
        except (FileNotFoundError, ValueError):
            return set()
        return set(ids) if self._clock.time() < float(until) else set()

    def _script(self, name: str, output: Path, file: Path, generation: int) -> str:
        lasts_s = self.settings.options.seconds or math.inf
        signal_s = min(300.0, self.paces.leave_s(lasts_s))
        return self.shape.script(name=name, output=output, file=file, generation=generation, signal_s=signal_s)

    def _address(self) -> str:
        listen = self.settings.listen
        try:
            return routing_to(commands.controller_address()) if listen is None else address_of(listen)
        except OSError as error:
            raise SettingError(
                f"listen={listen!r}: there is no such address on this machine ({error}); accepted are the name of a "
                "network interface, an IPv4 address, and None: the interface that routes to Slurm's controller"
            ) from error

    def _say_how(self) -> None:
        assert self._agents.listener is not None
        most, listener = self.settings.jobs, self._agents.listener
        jobs = "one job" if most == 1 else f"up to {most} jobs"
        self.say(f"trials run in {jobs} of Slurm, whose agents connect to {listener.ip}:{listener.port}")


def _staying(directory: Path) -> Path:
    """The file that says which jobs wait for the next driver, and until when."""
    return directory / "staying"
