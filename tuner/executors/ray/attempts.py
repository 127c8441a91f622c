"""Attempts on other hosts: sent there, told apart when something comes of them, and ended when all of it has come."""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections import deque
from collections.abc import Mapping

from trainables.errors import CheckpointCorruptError, CheckpointNotFoundError, PublishError
from trainables.net.failed import DISK
from trainables.store import fs
from trainables.wire import (
    Answer,
    AttemptErrored,
    Finished,
    Halt,
    Listening,
    Preempted,
    Report,
    SaveFailed,
    SavePublished,
    ToTrial,
)
from tuner.executors.base import Event, Exited, Launch, Message
from tuner.executors.local.lines import terminal
from tuner.executors.local.pickled import pickle_job
from tuner.executors.ray import connection
from tuner.executors.ray.arriving import Arriving, Coming
from tuner.executors.ray.groups import across, deputy_of, trial_of
from tuner.executors.ray.host import Host
from tuner.executors.ray.leases import Lease, Leases
from tuner.executors.ray.protocol import Kill, Output, Tell
from tuner.executors.ray.stores import Stores
from tuner.executors.ray.transfers import Carrier, Landing
from tuner.executors.reactor import Reactor

log = logging.getLogger(__name__)

_KILLED = -9
_LAST_WORDS = (Finished, AttemptErrored, Preempted)


@dataclasses.dataclass(slots=True, eq=False)
class _Attempt:
    launch: Launch
    ordered: Launch
    """As its host gets it."""
    lease: Lease
    host: Host
    others: list[Host]
    """Further hosts of its processes."""
    running: dict[str, Host] = dataclasses.field(default_factory=dict)
    """Its processes, as hosts call them, from their order to their end."""
    told: list[Tell | Kill] = dataclasses.field(default_factory=list)
    """Orders from before it was sent to its host."""
    sent: bool = False
    coming: Arriving = dataclasses.field(default_factory=Arriving)
    """Checkpoints of it that are on their way here."""
    landing: Landing = dataclasses.field(default_factory=Landing)
    failed: bool = False
    """They were too many: that is its last word."""
    last_word: Message | None = None
    given_back: bool = False
    """Its lease may be used again."""
    exited: Exited | None = None
    """It is over, and both are told when they have come: one that ended well has ended with its last checkpoint."""

    @property
    def trial_id(self) -> str:
        return self.launch.job.trial_id

    @property
    def number(self) -> int:
        return self.launch.job.attempt

    def order(self, order: Tell | Kill) -> None:
        (self.host.orders if self.sent else self.told).append(order)

    def end_processes(self) -> None:
        for name, host in self.running.items():
            host.orders.append(Kill(name))


class Attempts:
    """Everything that runs, or is about to. It belongs to the driver's thread.

    Args:
        hosts: by node.
        leases: slots, taken and put back here.
        stores: bring an attempt the checkpoint that it starts from.
        carrier: brings here what attempts save, unless hosts copy that to the replica.
    """

    def __init__(
        self, hosts: Mapping[str, Host], reactor: Reactor, leases: Leases, stores: Stores, carrier: Carrier
    ) -> None:
        self._hosts, self._reactor, self._leases = hosts, reactor, leases
        self._stores, self._carrier = stores, carrier
        self._all: dict[str, _Attempt] = {}
        self._queued: deque[Launch] = deque()
        """Attempts whose slot was lost before they began."""
        self._ended: list[Event] = []
        """Ended before they began; told with the next `take_ended`."""
        self._forgotten = False
        self._told_slow: set[str] = set()
        """Nodes of which was said that the way from there is slow."""

    def __bool__(self) -> bool:
        return bool(self._all)

    @property
    def queued(self) -> bool:
        """One waits for a slot."""
        return bool(self._queued)

    def directories(self) -> frozenset[str]:
        """The names of the directories of trials that run."""
        return frozenset(attempt.launch.job.directory.name for attempt in self._all.values())

    def launch(self, launch: Launch) -> None:
        if not self._forgotten:
            self._queued.append(launch)
            self.launch_queued()

    def launch_queued(self) -> None:
        """Launch what there is a slot for: one that was promised may have gone with its node meanwhile."""
        while self._queued and self._leases.has_room(self._queued[0].resources, ()):
            self._launch(self._queued.popleft())

    def tell(self, trial_id: str, message: ToTrial) -> None:
        attempt = self._all.get(trial_id)
        if attempt is not None:
            if isinstance(message, Answer) and attempt.coming.holds(message, time.monotonic()):
                return
            if isinstance(message, Halt):
                self._let_go_on(attempt, at_once=True)
            attempt.order(Tell(trial_id, message))
        elif isinstance(message, Halt):
            self.kill(trial_id)  # it has not begun

    def kill(self, trial_id: str) -> None:
        attempt = self._all.get(trial_id)
        if attempt is None:
            for launch in [launch for launch in self._queued if launch.job.trial_id == trial_id]:
                self._queued.remove(launch)
                self._ended.append(Exited(trial_id, launch.job.attempt, _KILLED, "killed"))
            return
        if attempt.sent:
            attempt.end_processes()
        elif attempt.exited is None:
            self._over(attempt, Exited(trial_id, attempt.number, _KILLED, "killed"), self._ended)

    def take_ended(self) -> list[Event]:
        """What ended without a word of its host, since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def halt_on(self, host: Host) -> None:
        """Have those that run there save and leave."""
        for attempt in self._all.values():
            if host in (attempt.host, *attempt.others) and attempt.exited is None:
                self._let_go_on(attempt, at_once=True)
                attempt.order(Tell(attempt.trial_id, Halt()))

    def forget(self) -> None:
        """The run is over: nothing is launched any more."""
        self._forgotten = True
        self._all.clear()
        self._queued.clear()

    # --- beginning ----------------------------------------------------------------------------------------

    def _launch(self, launch: Launch) -> None:
        lease = self._leases.take(launch.resources)
        host, *others = hosts = [self._hosts[node] for node in dict.fromkeys(lease.nodes)]
        job = across(launch.job, lease.nodes, {other.node: other.ip for other in hosts})
        launch = dataclasses.replace(launch, job=job)
        attempt = _Attempt(launch, self._told_apart(launch, lease, host), lease, host, others)
        self._all[attempt.trial_id] = attempt
        source = job.checkpoint_path
        # Where hosts copy to the replica themselves, the driver's own may be one that has to get it from there.
        if source is None or (fs.is_dir(source) and all(other.shared for other in hosts)):
            self._send(attempt)
            return

        def supply() -> None:
            for other in hosts:
                if not (other.shared and fs.is_dir(source)):
                    self._stores.supply(other, source, launch.digest)

        self._carrier.beside(
            host, supply, lambda error: self._reactor.call_soon(lambda events: self._there(attempt, error, events))
        )

    def _told_apart(self, launch: Launch, lease: Lease, host: Host) -> Launch:
        """The launch as its host gets it: nothing in it needs the user's modules before the trial loads them."""
        environment = dict(launch.environment)
        if lease.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(lease.gpus.get(host.node, ()))
        source = launch.job.checkpoint_path
        checkpoint = None if source is None else self._stores.place_on(host, source)
        job = dataclasses.replace(
            launch.job, checkpoint_path=checkpoint, temporary=host.temporary(launch.job.temporary)
        )
        return dataclasses.replace(
            launch,
            resources={"cpu": float(launch.resources.get("cpu", 1.0))},
            packed=pickle_job(job, f"the config of trial {job.trial_id}"),
            job=dataclasses.replace(job, config={}),
            tee=launch.stdout is not None and (launch.tee or not host.shared),
            environment=environment,
        )

    def _there(self, attempt: _Attempt, problem: Exception | None, events: list[Event]) -> None:
        """The checkpoint that it starts from is on its host, or cannot be brought there."""
        if self._all.get(attempt.trial_id) is not attempt or attempt.exited is not None:
            return
        if problem is None:
            self._send(attempt)
            return
        log.warning("trial %s cannot start on %s: %s", attempt.trial_id, attempt.host.name, problem)
        unusable = isinstance(problem, CheckpointCorruptError | CheckpointNotFoundError)
        if isinstance(problem, PublishError):
            failed = AttemptErrored("PublishError", str(problem), "", disk=problem.errno in DISK)
            attempt.last_word = Message(attempt.trial_id, attempt.number, failed)
        exited = Exited(attempt.trial_id, attempt.number, _KILLED, "unusable" if unusable else "lost")
        self._over(attempt, exited, events)

    def _send(self, attempt: _Attempt) -> None:
        attempt.sent = True
        attempt.running[attempt.trial_id] = attempt.host
        attempt.host.orders += [attempt.ordered, *attempt.told]

    def _send_deputies(self, attempt: _Attempt, port: int) -> None:
        """Start what its first process waits for, on the other nodes."""
        for number, host in enumerate(attempt.others, 1):
            job = deputy_of(attempt.launch.job, number, port)
            launch = dataclasses.replace(attempt.launch, job=job, timeout_s=None)  # the first one's ends all
            attempt.running[launch.job.trial_id] = host
            host.orders.append(self._told_apart(launch, attempt.lease, host))

    # --- what comes of them -------------------------------------------------------------------------------

    def heard(self, host: Host, heard: Event | Output, events: list[Event]) -> None:
        """An agent said something of a process there."""
        attempt = self._all.get(trial_of(heard.trial_id))
        if attempt is None or attempt.number != heard.attempt or attempt.running.get(heard.trial_id) is not host:
            return  # of an attempt that was given up
        host.useful = True
        if isinstance(heard, Output):
            _write_down(attempt, host, heard)
        elif heard.trial_id != attempt.trial_id:
            self._heard_deputy(attempt, heard, events)
        elif isinstance(heard, Exited):
            del attempt.running[heard.trial_id]
            self._over(attempt, heard, events)
        elif attempt.exited is not None:
            return  # it was lost with another host, and what it says counts no more
        elif isinstance(heard, Message) and isinstance(heard.body, Listening):
            self._send_deputies(attempt, heard.body.port)
        elif isinstance(heard, Message) and isinstance(heard.body, _LAST_WORDS):
            if not attempt.failed:
                attempt.last_word = heard
        elif isinstance(heard, Message) and isinstance(heard.body, SavePublished) and not host.shared:
            if self._stores.replicated:
                host.has(attempt.launch.job.directory / heard.body.ref.name)
                events.append(heard)
            else:
                self._fetch(attempt, heard, heard.body)
        else:
            if isinstance(heard, Message) and isinstance(heard.body, Report):
                attempt.coming.saves = heard.body.saving is not None
            events.append(heard)

    def _heard_deputy(self, attempt: _Attempt, heard: Event, events: list[Event]) -> None:
        """What comes of the others is told by the first process, unless one cannot even reach that."""
        if isinstance(heard, Message) and isinstance(heard.body, AttemptErrored):
            if attempt.last_word is None:
                attempt.last_word = dataclasses.replace(heard, trial_id=attempt.trial_id)
            attempt.end_processes()
        elif isinstance(heard, Exited):
            del attempt.running[heard.trial_id]
            if attempt.exited is not None:
                self._over(attempt, attempt.exited, events)

    def lost(self, host: Host, events: list[Event]) -> None:
        """A host is gone, and with it what ran there."""
        for attempt in [each for each in self._all.values() if host in (each.host, *each.others)]:
            attempt.running = {name: where for name, where in attempt.running.items() if where is not host}
            last = None if attempt.last_word is None else attempt.last_word.body
            if host is attempt.host or attempt.exited is None or isinstance(last, AttemptErrored):
                attempt.landing.give_up()
                attempt.coming.give_up()
                attempt.last_word = None  # whatever it said, what it saved last is lost
                attempt.exited = Exited(attempt.trial_id, attempt.number, _KILLED, "lost")
            self._over(attempt, attempt.exited, events)

    def _fetch(self, attempt: _Attempt, message: Message, body: SavePublished) -> None:
        """Copy what was just saved here; then it is told."""
        coming = attempt.coming.add(message)
        path = attempt.launch.job.directory / body.ref.name

        def arrived(problem: Exception | None) -> None:
            self._reactor.call_soon(lambda events: self._arrived(attempt, coming, body, problem, events))

        host, landing = attempt.host, attempt.landing
        self._carrier.beside(
            host, lambda: self._carrier.bring_here(host, path, self._stores.root, body.digest, landing), arrived
        )

    def _arrived(
        self,
        attempt: _Attempt,
        coming: Coming,
        body: SavePublished,
        problem: Exception | None,
        events: list[Event],
    ) -> None:
        if self._all.get(attempt.trial_id) is not attempt or coming not in attempt.coming:
            return
        if problem is not None and connection.is_of_the_dead(problem):
            return  # that the host is lost is all that is to be said
        arriving = attempt.coming
        if problem is None:
            coming.told = coming.message
        else:
            failed = SaveFailed(body.ref, f"it could not be copied from {attempt.host.name}: {problem}")
            self._stores.drop_later(attempt.host, attempt.launch.job.directory / body.ref.name)
            coming.told = dataclasses.replace(coming.message, body=failed)
        arriving.failed = 0 if problem is None else arriving.failed + 1
        if problem is not None and arriving.failed >= max(attempt.launch.job.max_publish_failures, 1):
            self._fail(attempt, problem)
        events += arriving.take()
        self._let_go_on(attempt)
        if attempt.exited is not None and not arriving:
            self._over(attempt, attempt.exited, events)

    def _let_go_on(self, attempt: _Attempt, *, at_once: bool = False) -> None:
        """A trial that had to wait for its checkpoints need not any more."""
        if (freed := attempt.coming.freed(time.monotonic(), at_once=at_once)) is None:
            return
        answer, long = freed
        if long and attempt.host.node not in self._told_slow:
            self._told_slow.add(attempt.host.node)
            log.warning(
                "checkpoints are saved on %s faster than they come here: its trials wait for them", attempt.host.name
            )
        attempt.order(Tell(attempt.trial_id, answer))

    def _fail(self, attempt: _Attempt, problem: Exception) -> None:
        """What it saves does not come here, again and again: it fails, as it does where that is its own disk."""
        said = None if attempt.last_word is None else attempt.last_word.body
        if not isinstance(said, Finished) and (said is not None or attempt.exited is not None):
            return  # it has failed already, was preempted, or died
        text = f"{attempt.coming.failed} checkpoints in a row were not copied from {attempt.host.name}; the last one: "
        disk = isinstance(problem, OSError) and problem.errno in DISK
        failed = AttemptErrored("PublishError", text + str(problem), "", disk=disk)
        attempt.last_word, attempt.failed = Message(attempt.trial_id, attempt.number, failed), True
        attempt.end_processes()

    def _over(self, attempt: _Attempt, exited: Exited, events: list[Event]) -> None:
        attempt.exited = attempt.exited or exited
        if attempt.running:
            attempt.end_processes()  # those on other nodes
            return
        if not attempt.given_back:
            attempt.given_back = True
            self._leases.put_back(attempt.lease)
        if not attempt.coming:
            del self._all[attempt.trial_id]
            if attempt.last_word is not None:
                events.append(attempt.last_word)
            events.append(attempt.exited)


def _write_down(attempt: _Attempt, host: Host, output: Output) -> None:
    """Show what a trial wrote on its host, and append it to the file that people read here."""
    launch = attempt.launch
    if launch.tee and (stream := terminal(output.stream)) is not None:
        stream.write(output.text)
        stream.flush()
    path = launch.stdout if output.stream == "stdout" else launch.stderr
    if host.shared or path is None:
        return  # it is that very file
    data = output.text.encode(errors="replace")
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            fs.write(fd, data)
        finally:
            os.close(fd)
    except OSError:
        pass  # a full disk must not end the run; the host has the file too
