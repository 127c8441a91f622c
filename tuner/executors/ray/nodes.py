"""The nodes of a run: their agents started, told that the driver lives, listened to, and missed when they are gone."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import cloudpickle

from trainables.starting import start_thread
from trainables.wire import CheckpointRef
from tuner.error import TuneError
from tuner.executors.base import Event
from tuner.executors.ray import connection
from tuner.executors.ray.host import AgentError, Host
from tuner.executors.ray.leases import Lease, Leases
from tuner.executors.ray.line import AgentLine
from tuner.executors.ray.protocol import HEARTBEAT_S, Broken, Output, Setup, unpack_heard
from tuner.executors.ray.stores import Stores
from tuner.executors.reactor import Reactor
from tuner.executors.remote_hosts import ExperimentPlace, Uploading

log = logging.getLogger(__name__)

_MAX_USELESS = 3
"""So often in a row an agent may end on a node that lives before a trial has said anything there."""

Found = tuple[str, str, CheckpointRef, str]
"""(node, trial directory, checkpoint, digest)"""


class Nodes:
    """Knows which nodes there are. All but the callbacks that it gives away belongs to the driver's thread.

    Args:
        hosts: by node; changed here alone.
        leases: are told which nodes leave and die.
        stores: have what nodes that come later do not need any more deleted.
        runtime_env: Ray's, for the agents.
        heard: called with what an agent said.
        leaves: called when a host is about to go.
        lost: called when it is gone.
        busy: the names of the directories of trials that run.
        keeps: whether a checkpoint in a trial directory is needed.
    """

    def __init__(
        self,
        hosts: dict[str, Host],
        reactor: Reactor,
        leases: Leases,
        stores: Stores,
        *,
        runtime_env: Mapping[str, Any] | None,
        heard: Callable[[Host, Event | Output, list[Event]], None],
        leaves: Callable[[Host], None],
        lost: Callable[[Host, list[Event]], None],
        busy: Callable[[], frozenset[str]],
        keeps: Callable[[str, CheckpointRef], bool],
    ) -> None:
        self._hosts, self._reactor, self._leases, self._stores = hosts, reactor, leases, stores
        self._runtime_env = runtime_env
        self._on_heard, self._on_leaves, self._on_lost = heard, leaves, lost
        self._busy, self._keeps = busy, keeps
        self._place: ExperimentPlace | None = None
        self._begin: Callable[[Host], None] | None = None
        self._numbers = itertools.count(1)
        self._useless: Counter[str] = Counter()
        self._ending = threading.Event()

    def look(self, place: ExperimentPlace) -> list[Found]:
        """Start an agent on every node, have it end what older owners left there, and say what lies there.

        Raises SettingError where a node cannot write to the experiment's directory.
        """
        self._place = place
        for node in connection.nodes():
            self._add(node)
        start_thread(self._beat, name="ray-heartbeat")
        start_thread(self._watch, name="ray-nodes", args=(set(self._hosts),))
        found: list[Found] = []
        for host in list(self._hosts.values()):
            try:
                found += [(host.node, *each) for each in host.looked().found]
            except AgentError:
                if _is_alive(host.node):
                    raise
                del self._hosts[host.node]  # it died just now
        return found

    def open_uploads(self, uploading: Uploading) -> str | None:
        """Have every host with a disk of its own look whether it can use the replica's place; why not, or None.

        Raises TuneError where there is no other way.
        """
        pickled = cloudpickle.dumps(uploading)
        waits = [(host, host.open_uploads(pickled)) for host in self._hosts.values() if not host.shared]
        for host, wait in waits:
            try:
                wait()
            except Exception as error:  # whatever its library raises
                if uploading.needed:
                    raise TuneError(f"node {host.name} cannot copy its checkpoints: {error}") from error
                return f"{host.name} cannot copy its checkpoints itself, so they come here first: {error}"
        return None

    def begin(self, setup: Setup, pickled: Any, modules: Any) -> None:
        """Have the agents, those of nodes that come later too, get ready for trials."""

        def begin(host: Host, pickled: Any, modules: Any) -> None:
            def failed(error: BaseException) -> None:
                self._reactor.call_soon(lambda events: self._fail(host, error, events))

            def begun() -> None:
                self._reactor.call_soon(lambda events: self._listen(host))

            host.begin(setup, pickled, modules, begun, failed)

        def begin_later(host: Host) -> None:
            # With copies of its own: of shared ones Ray may ask a node that dies just now, and another only 10 s later.
            begin(host, *connection.load().get([pickled, modules]))

        self._begin = begin_later
        for host in self._hosts.values():
            begin(host, pickled, modules)

    def use(self, lease: Lease) -> None:
        """Hand out a slot, once the agents of all its nodes are ready."""
        for id in lease.nodes:
            host = self._hosts.get(id)
            if host is not None and host.ready:
                continue
            if host is None:
                node = next((node for node in connection.nodes() if node.id == id), None)
                if node is None:
                    self._leases.lost(id)  # it came, and went
                    return
                host = self._add(node)
            self._when_looked(host, lease)
            return
        self._leases.free(lease)

    def end_trials(self) -> None:
        """When it returns, no process of a trial is left; the agents still do what their stores are asked for."""
        for host in self._hosts.values():
            host.end()
        for host in self._hosts.values():
            host.ended()

    def release(self) -> None:
        """Let go of them."""
        self._ending.set()
        for host in self._hosts.values():
            host.release()
        self._hosts.clear()

    # --- coming -----------------------------------------------------------------------------------------

    def _add(self, node: connection.Node) -> Host:
        assert self._place is not None, "look() comes first"
        number = next(self._numbers)
        host = Host(node.id, node.ip, self._runtime_env, self._place, number=number, busy=self._busy())
        self._hosts[node.id] = host
        return host

    def _greet(self, node: connection.Node, events: list[Event]) -> None:
        """A node has joined: its agent is ready before a trial is placed there."""
        if node.id not in self._hosts and self._begin is not None:
            self._when_looked(self._add(node), None)

    def _when_looked(self, host: Host, lease: Lease | None) -> None:
        host.when_looked(lambda done: self._reactor.call_soon(lambda events: self._joined(host, lease)))

    def _joined(self, host: Host, lease: Lease | None) -> None:
        """A node that came later has looked around."""
        if self._begin is None:
            return
        if self._hosts.get(host.node) is not host:  # it was given up meanwhile, and may be tried once more
            if lease is not None and lease in self._leases:
                self.use(lease)
            return
        if not host.ready:
            try:
                found = host.looked().found
            except TuneError as error:
                log.warning("not used: %s", error)
                del self._hosts[host.node]
                host.release()
                if lease is not None and _is_alive(host.node):
                    self._leases.keep_away(lease)
                elif lease is not None:
                    self._leases.lost(host.node)
                return
            self._begin(host)
            # It was here before: nobody needs what it saved that has not come here, and what was deleted meanwhile.
            for dirname, ref, _ in found:
                if not self._keeps(dirname, ref):
                    self._stores.drop_later(host, self._stores.root / dirname / ref.name)
        if lease is not None:
            self.use(lease)

    # --- living ------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        while not self._ending.wait(HEARTBEAT_S):
            for host in list(self._hosts.values()):
                host.beat()

    def _watch(self, greeted: set[str]) -> None:
        """Apart from the heartbeat: where the cluster's head does not answer, trials go on."""
        leaving: set[str] = set()
        while not self._ending.wait(HEARTBEAT_S):
            try:
                drained, there = connection.draining(), connection.nodes()
            except Exception as error:  # whatever Ray raises: the next look may do better
                log.debug("Ray does not say which nodes there are: %s", error)
                continue
            for id in drained - leaving:
                self._reactor.call_soon(partial(self._drain, id))
            leaving |= drained
            for node in there:
                if node.id not in greeted:
                    self._reactor.call_soon(partial(self._greet, node))
            greeted |= {node.id for node in there}

    def _listen(self, host: Host) -> None:
        host.listen(lambda answer: self._reactor.call_soon(lambda events: self._heard(host, answer, events)))
        if (line := host.line) is not None:
            self._reactor.watch(line.fileno(), partial(self._read, host, line))

    def _read(self, host: Host, line: AgentLine, events: list[Event]) -> None:
        batches = line.receive()
        if batches is None:
            self._reactor.forget(line.fileno())
            self._lost(host, ConnectionError(f"the line to {host.name} has ended"), events)
            return
        for batch in batches:
            if not host.lost:
                self._heard(host, batch, events)

    def _heard(self, host: Host, answer: Any, events: list[Event]) -> None:
        if isinstance(answer, BaseException):
            self._lost(host, answer, events)
            return
        for heard in unpack_heard(answer):
            if isinstance(heard, Broken):
                raise TuneError(f"{host.name} cannot run trials: {heard.reason}")
            self._on_heard(host, heard, events)

    # --- going -------------------------------------------------------------------------------------------

    def _drain(self, id: str, events: list[Event]) -> None:
        """A node is about to go away: its trials save, and go on elsewhere."""
        self._leases.leave(id)
        if (host := self._hosts.get(id)) is not None:
            log.warning("node %s is being drained: its trials save, and go on elsewhere", host.name)
            self._on_leaves(host)

    def _fail(self, host: Host, error: BaseException, events: list[Event]) -> None:
        """A node that lives cannot run trials: on others they would fail too."""
        if self._hosts.get(host.node) is not host:
            return
        if connection.is_death(error):
            self._lost(host, error, events)
        else:
            text = str(error).strip().splitlines()
            raise TuneError(f"{host.name} cannot run trials: {text[-1] if text else repr(error)}") from error

    def _lost(self, host: Host, error: BaseException, events: list[Event]) -> None:
        """Its agent, or the whole node, is gone: what ran there is lost."""
        if self._hosts.get(host.node) is not host or self._ending.is_set():
            return
        log.warning("node %s is lost: %s", host.name, str(error).splitlines()[0] if str(error) else repr(error))
        del self._hosts[host.node]
        host.lost = True
        host.release()  # if Ray has lost sight of it only
        self._leases.lost(host.node)
        if host.useful:
            del self._useless[host.node]
        else:
            self._useless[host.node] += 1
            if self._useless[host.node] >= _MAX_USELESS and _is_alive(host.node):
                raise TuneError(f"{host.name}: its agent ends before a trial has begun: {error}") from error
        self._on_lost(host, events)


def _is_alive(id: str) -> bool:
    return any(node.id == id for node in connection.nodes())
