"""The hosts of a run: their agents started, told that the driver lives, listened to, and missed when they are gone."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import cloudpickle

from trainables.starting import start_thread
from trainables.wire import CheckpointRef
from tuner.error import TuneError
from tuner.executors.base import Event
from tuner.executors.host_agent.line import AgentLine
from tuner.executors.host_agent.protocol import HEARTBEAT_S, HostBroken, Setup, TrialOutput, unpack_heard
from tuner.executors.reactor import Reactor
from tuner.executors.remote.handle import AgentHandle, AgentUnreachableError
from tuner.executors.remote.host import AgentError, RemoteHost, last_line
from tuner.executors.remote_hosts import ExperimentPlace, Uploading

log = logging.getLogger(__name__)

_MAX_USELESS = 3
"""So often in a row an agent may end on a node that lives before a trial has said anything there."""

Found = tuple[str, str, CheckpointRef, str]
"""(node, trial directory, checkpoint, digest)"""


class HostAgents:
    """All but the callbacks that it gives away belongs to the driver's thread.

    Args:
        is_alive: whether a node still lives, whatever became of its agent.
        heard: called with what an agent said.
        lost: called when a host is gone.
        busy: the names of the directories of trials that run.
    """

    def __init__(
        self,
        reactor: Reactor,
        start: Callable[[str], AgentHandle],
        *,
        is_alive: Callable[[str], bool],
        heard: Callable[[RemoteHost, Event | TrialOutput, list[Event]], None],
        lost: Callable[[RemoteHost, list[Event]], None],
        busy: Callable[[], frozenset[str]],
    ) -> None:
        self._reactor, self._start, self._is_alive, self._busy = reactor, start, is_alive, busy
        self._on_heard, self._on_lost = heard, lost
        self.by_node: dict[str, RemoteHost] = {}
        """Changed here alone."""
        self.ending = threading.Event()
        self._place: ExperimentPlace | None = None
        self._numbers = itertools.count(1)
        self._useless: Counter[str] = Counter()

    def survey(self, place: ExperimentPlace, nodes: Iterable[tuple[str, str]]) -> list[Found]:
        """Start an agent on every node, have it end what older owners left there, and say what lies there.

        Args:
            nodes: (id, address) of each.

        Raises SettingError where a node cannot write to the experiment's directory.
        """
        self._place = place
        for node, ip in nodes:
            self.add(node, ip)
        start_thread(self._beat, name="tuner-heartbeat")
        found: list[Found] = []
        for host in list(self.by_node.values()):
            try:
                found += [(host.node, *each) for each in host.survey().found]
            except AgentError:
                if self._is_alive(host.node):
                    raise
                del self.by_node[host.node]  # it died just now
        return found

    def add(self, node: str, ip: str) -> RemoteHost:
        assert self._place is not None, "survey() comes first"
        number, busy = next(self._numbers), self._busy()
        host = RemoteHost(node, ip, self._start(node), self._place, number=number, busy=busy)
        self.by_node[node] = host
        return host

    def __contains__(self, host: RemoteHost) -> bool:
        """It is neither given up nor lost."""
        return self.by_node.get(host.node) is host

    def open_uploads(self, uploading: Uploading) -> str | None:
        """Have every host with a disk of its own look whether it can use the replica's place; why not, or None.

        Raises TuneError where there is no other way.
        """
        pickled = cloudpickle.dumps(uploading)
        waits = [(host, host.store.open_uploads(pickled)) for host in self.by_node.values() if not host.shared]
        for host, wait in waits:
            try:
                wait()
            except Exception as error:  # whatever its library raises
                if uploading.needed:
                    raise TuneError(f"node {host.name} cannot copy its checkpoints: {error}") from error
                return f"{host.name} cannot copy its checkpoints itself, so they come here first: {error}"
        return None

    def begin(self, host: RemoteHost, setup: Setup, pickled: Any, modules: Any) -> None:
        """Have a host get ready for trials, and listen to it then."""

        def then(error: BaseException | None) -> None:
            self._reactor.call_soon(lambda events: self._begun(host, error, events))

        host.begin(setup, pickled, modules, then)

    def give_up(self, host: RemoteHost) -> None:
        """It is not used."""
        del self.by_node[host.node]
        host.release()

    def flush(self) -> None:
        """Send what was ordered."""
        for host in self.by_node.values():
            host.flush()

    def end_trials(self) -> None:
        """When it returns, no process of a trial is left; the agents still do what their stores are asked for."""
        for host in self.by_node.values():
            host.end()
        for host in self.by_node.values():
            host.ended()

    def release(self) -> None:
        """Let go of them."""
        self.ending.set()
        for host in self.by_node.values():
            host.release()
        self.by_node.clear()

    def _beat(self) -> None:
        while not self.ending.wait(HEARTBEAT_S):
            for host in list(self.by_node.values()):
                host.beat()

    def _begun(self, host: RemoteHost, error: BaseException | None, events: list[Event]) -> None:
        if isinstance(error, AgentUnreachableError):
            self._lost(host, error, events)
            return
        if error is not None:
            if host not in self:
                return
            # A node that lives cannot run trials: on others they would fail too.
            raise TuneError(f"{host.name} cannot run trials: {last_line(error)}") from error
        host.listen(lambda answer: self._reactor.call_soon(lambda events: self._heard(host, answer, events)))
        if (line := host.line) is not None:
            self._reactor.watch(line.fileno(), partial(self._read, host, line))

    def _read(self, host: RemoteHost, line: AgentLine, events: list[Event]) -> None:
        batches = line.receive()
        if batches is None:
            self._reactor.forget(line.fileno())
            self._lost(host, ConnectionError(f"the line to {host.name} has ended"), events)
        for batch in batches or ():
            if not host.lost:
                self._heard(host, batch, events)

    def _heard(self, host: RemoteHost, answer: bytes | BaseException, events: list[Event]) -> None:
        if isinstance(answer, BaseException):
            self._lost(host, answer, events)
            return
        for heard in unpack_heard(answer):
            if isinstance(heard, HostBroken):
                raise TuneError(f"{host.name} cannot run trials: {heard.reason}")
            self._on_heard(host, heard, events)

    def _lost(self, host: RemoteHost, error: BaseException, events: list[Event]) -> None:
        """Its agent, or the whole node, is gone: what ran there is lost."""
        if host not in self or self.ending.is_set():
            return
        log.warning("node %s is lost: %s", host.name, str(error).splitlines()[0] if str(error) else repr(error))
        host.lost = True
        self.give_up(host)  # released too: it may have gone out of sight only
        self._on_lost(host, events)
        if host.useful:
            del self._useless[host.node]
            return
        self._useless[host.node] += 1
        if self._useless[host.node] >= _MAX_USELESS and self._is_alive(host.node):
            raise TuneError(f"{host.name}: its agent ends before a trial has begun: {error}") from error
