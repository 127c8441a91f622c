"""Attempts on other hosts: sent there, told apart when something comes of them, and ended when all of it has come."""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from trainables import wire
from trainables.errors import CheckpointCorruptError, CheckpointNotFoundError, PublishError
from trainables.net.failed import DISK
from trainables.store import fs
from tuner.executors.base import KILLED, Event, Exited, Launch, Message, Resources
from tuner.executors.host_agent.protocol import TellTrial, TrialOutput
from tuner.executors.local.lines import terminal
from tuner.executors.local.pickled import pickle_job
from tuner.executors.reactor import Reactor
from tuner.executors.remote.groups import across, launcher_job, trial_of
from tuner.executors.remote.host import RemoteHost
from tuner.executors.remote.remote_attempt import LeasedSlot, RemoteAttempt
from tuner.executors.remote.saves import SaveFetcher
from tuner.executors.remote.stores import Stores
from tuner.executors.remote.transfers import Carrier

log = logging.getLogger(__name__)

_LAST_WORDS = (wire.Finished, wire.AttemptErrored, wire.Preempted)


class SlotSource(Protocol):
    """Where attempts get what they run in."""

    def has_room(self, resources: Resources, promised: Iterable[Resources]) -> bool:
        """Whether a slot is free beside the promised ones."""

    def take(self, resources: Resources) -> Any:
        """A free slot, a `LeasedSlot`; needs `has_room`."""

    def put_back(self, slot: Any) -> None:
        """Nothing runs in it any more."""


class RemoteAttempts:
    """Everything that runs, or is about to. It belongs to the driver's thread.

    Args:
        slots: taken and put back here.
        stores: bring an attempt the checkpoint that it starts from.
        carrier: brings here what attempts save, unless hosts copy that to the replica.
    """

    def __init__(
        self, hosts: Mapping[str, RemoteHost], reactor: Reactor, slots: SlotSource, stores: Stores, carrier: Carrier
    ) -> None:
        self._hosts, self._reactor, self._slots = hosts, reactor, slots
        self._stores, self._carrier = stores, carrier
        self._saves = SaveFetcher(reactor, stores, carrier, self._over)
        self._all: dict[str, RemoteAttempt] = {}
        self._queued: deque[Launch] = deque()
        """Attempts whose slot was lost before they began."""
        self._forgotten = False

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
        while self._queued and self._slots.has_room(self._queued[0].resources, ()):
            self._launch(self._queued.popleft())

    def tell(self, trial_id: str, message: wire.ToTrial) -> None:
        attempt = self._all.get(trial_id)
        if attempt is not None:
            if isinstance(message, wire.Answer) and attempt.coming.holds(message, time.monotonic()):
                return
            if isinstance(message, wire.Halt):
                self._saves.let_go_on(attempt, at_once=True)
            attempt.order(TellTrial(trial_id, message))
        elif isinstance(message, wire.Halt):
            self.kill(trial_id)  # it has not begun

    def kill(self, trial_id: str) -> None:
        attempt = self._all.get(trial_id)
        if attempt is None:
            if (launch := next((each for each in self._queued if each.job.trial_id == trial_id), None)) is not None:
                self._queued.remove(launch)
                exited = Exited(trial_id, launch.job.attempt, KILLED, "killed")
                self._reactor.call_soon(lambda events: events.append(exited))
        elif attempt.sent:
            attempt.end_processes()
        elif attempt.exited is None:
            attempt.exited = Exited(trial_id, attempt.number, KILLED, "killed")
            self._reactor.call_soon(lambda events: self._over(attempt, events))

    def halt_on(self, host: RemoteHost) -> None:
        """Have those that run there save and leave."""
        for attempt in self._all.values():
            if attempt.is_on(host) and attempt.exited is None:
                self._saves.let_go_on(attempt, at_once=True)
                attempt.order(TellTrial(attempt.trial_id, wire.Halt()))

    def forget(self) -> None:
        """The run is over: nothing is launched any more."""
        self._forgotten = True
        for attempt in self._all.values():
            attempt.coming.give_up()
        self._all.clear()
        self._queued.clear()

    # --- beginning ----------------------------------------------------------------------------------------

    def _launch(self, launch: Launch) -> None:
        slot = self._slots.take(launch.resources)
        host, *others = hosts = [self._hosts[node] for node in dict.fromkeys(slot.nodes)]
        job = across(launch.job, slot.nodes, {other.node: other.ip for other in hosts})
        launch = dataclasses.replace(launch, job=job)
        attempt = RemoteAttempt(launch, self._told_apart(launch, slot, host), slot, host, others)
        self._all[attempt.trial_id] = attempt
        source = job.checkpoint_path
        # Where hosts copy to the replica themselves, the driver's own may be one that has to get it from there.
        if source is None or (fs.is_dir(source) and all(other.shared for other in hosts)):
            attempt.send()
            return

        def supply() -> None:
            for other in hosts:
                if not (other.shared and fs.is_dir(source)):
                    self._stores.supply(other, source, launch.digest)

        self._carrier.beside(
            host, supply, lambda error: self._reactor.call_soon(lambda events: self._there(attempt, error, events))
        )

    def _told_apart(self, launch: Launch, slot: LeasedSlot, host: RemoteHost) -> Launch:
        """The launch as its host gets it: nothing in it needs the user's modules before the trial loads them."""
        environment = dict(launch.environment)
        if slot.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(slot.gpus.get(host.node, ()))
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

    def _there(self, attempt: RemoteAttempt, problem: Exception | None, events: list[Event]) -> None:
        """The checkpoint that it starts from is on its host, or cannot be brought there."""
        if self._all.get(attempt.trial_id) is not attempt or attempt.exited is not None:
            return
        if problem is None:
            attempt.send()
            return
        log.warning("trial %s cannot start on %s: %s", attempt.trial_id, attempt.host.name, problem)
        unusable = isinstance(problem, CheckpointCorruptError | CheckpointNotFoundError)
        if isinstance(problem, PublishError):
            failed = wire.AttemptErrored("PublishError", str(problem), "", disk=problem.errno in DISK)
            attempt.last_word = Message(attempt.trial_id, attempt.number, failed)
        attempt.exited = Exited(attempt.trial_id, attempt.number, KILLED, "unusable" if unusable else "lost")
        self._over(attempt, events)

    def _start_launchers(self, attempt: RemoteAttempt, port: int) -> None:
        """Start what its first process waits for, on the other nodes."""
        for number, host in enumerate(attempt.others, 1):
            job = launcher_job(attempt.launch.job, number, port)
            launch = dataclasses.replace(attempt.launch, job=job, timeout_s=None)  # the first one's ends all
            attempt.running[launch.job.trial_id] = host
            host.orders.append(self._told_apart(launch, attempt.slot, host))

    # --- what comes of them -------------------------------------------------------------------------------

    def heard(self, host: RemoteHost, heard: Event | TrialOutput, events: list[Event]) -> None:
        """An agent said something of a process there."""
        attempt = self._all.get(trial_of(heard.trial_id))
        if attempt is None or attempt.number != heard.attempt or attempt.running.get(heard.trial_id) is not host:
            return  # of an attempt that was given up
        host.useful = True
        if isinstance(heard, TrialOutput):
            _write_down(attempt, host, heard)
        elif heard.trial_id != attempt.trial_id:
            self._heard_launcher(attempt, heard, events)
        elif isinstance(heard, Exited):
            del attempt.running[heard.trial_id]
            attempt.exited = attempt.exited or heard
            self._over(attempt, events)
        elif attempt.exited is not None:
            return  # it was lost with another host, and what it says counts no more
        elif isinstance(heard, Message) and isinstance(heard.body, wire.Listening):
            self._start_launchers(attempt, heard.body.port)
        elif isinstance(heard, Message) and isinstance(heard.body, _LAST_WORDS):
            if not attempt.failed:
                attempt.last_word = heard
        elif isinstance(heard, Message) and isinstance(heard.body, wire.SavePublished) and not host.shared:
            if self._stores.uploads:
                host.store.has(attempt.launch.job.directory / heard.body.ref.name)
                events.append(heard)
            else:
                self._saves.fetch(attempt, heard, heard.body)
        else:
            if isinstance(heard, Message) and isinstance(heard.body, wire.Report):
                attempt.coming.saves = heard.body.saving is not None
            events.append(heard)

    def _heard_launcher(self, attempt: RemoteAttempt, heard: Event, events: list[Event]) -> None:
        """What comes of the others is told by the first process, unless one cannot even reach that."""
        if isinstance(heard, Message) and isinstance(heard.body, wire.AttemptErrored):
            if attempt.last_word is None:
                attempt.last_word = dataclasses.replace(heard, trial_id=attempt.trial_id)
            attempt.end_processes()
        elif isinstance(heard, Exited):
            del attempt.running[heard.trial_id]
            if attempt.exited is not None:
                self._over(attempt, events)

    def lost(self, host: RemoteHost, events: list[Event]) -> None:
        """A host is gone, and with it what ran there."""
        for attempt in [each for each in self._all.values() if each.is_on(host)]:
            attempt.running = {name: where for name, where in attempt.running.items() if where is not host}
            last = None if attempt.last_word is None else attempt.last_word.body
            if host is attempt.host or attempt.exited is None or isinstance(last, wire.AttemptErrored):
                attempt.landing.give_up()
                attempt.coming.give_up()
                attempt.last_word = None  # whatever it said, what it saved last is lost
                attempt.exited = Exited(attempt.trial_id, attempt.number, KILLED, "lost")
            self._over(attempt, events)

    def _over(self, attempt: RemoteAttempt, events: list[Event]) -> None:
        """It has exited: told once no process of it is left, and all that it saved is here."""
        if self._all.get(attempt.trial_id) is not attempt or attempt.exited is None:
            return
        if attempt.running:
            attempt.end_processes()  # those on other nodes
            return
        if not attempt.given_back:
            attempt.given_back = True
            self._slots.put_back(attempt.slot)
        if not attempt.coming:
            del self._all[attempt.trial_id]
            if attempt.last_word is not None:
                events.append(attempt.last_word)
            events.append(attempt.exited)


def _write_down(attempt: RemoteAttempt, host: RemoteHost, output: TrialOutput) -> None:
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
