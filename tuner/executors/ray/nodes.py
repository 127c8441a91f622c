"""The nodes of a Ray cluster during a run: which there are, which come and go, and which slots may be used when."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from trainables.starting import start_thread
from trainables.wire import CheckpointRef
from tuner.error import TuneError
from tuner.executors.base import Event
from tuner.executors.host_agent.protocol import HEARTBEAT_S, Setup
from tuner.executors.ray import connection
from tuner.executors.ray.leases import Leases
from tuner.executors.ray.placement import Lease
from tuner.executors.reactor import Reactor
from tuner.executors.remote.host import RemoteHost
from tuner.executors.remote.hosts import Found, HostAgents
from tuner.executors.remote.stores import Stores
from tuner.executors.remote_hosts import ExperimentPlace

log = logging.getLogger(__name__)


class RayNodes:
    """Puts nodes and slots together: a slot is handed out once the agents of all its nodes are ready.

    Args:
        leases: are told which nodes leave.
        stores: have what nodes that come later do not need any more deleted.
        leaves: called when a host is about to go.
        keeps: whether a checkpoint in a trial directory is needed.
    """

    def __init__(
        self,
        hosts: HostAgents,
        reactor: Reactor,
        leases: Leases,
        stores: Stores,
        *,
        leaves: Callable[[RemoteHost], None],
        keeps: Callable[[str, CheckpointRef], bool],
    ) -> None:
        self._hosts, self._reactor, self._leases, self._stores = hosts, reactor, leases, stores
        self._on_leaves, self._keeps = leaves, keeps
        self._begin: Callable[[RemoteHost], None] | None = None

    def survey(self, place: ExperimentPlace) -> list[Found]:
        """`HostAgents.survey` of every node."""
        nodes = connection.nodes()
        start_thread(self._watch, name="ray-nodes", args=({node.id for node in nodes},))
        return self._hosts.survey(place, [(node.id, node.ip) for node in nodes])

    def begin(self, setup: Setup, pickled: Any, modules: Any) -> None:
        """Have the agents, those of nodes that come later too, get ready for trials."""

        def begin_later(host: RemoteHost) -> None:
            # With copies of its own: of shared ones Ray may ask a node that dies just now, and another only 10 s later.
            self._hosts.begin(host, setup, *connection.load().get([pickled, modules]))

        self._begin = begin_later
        for host in self._hosts.by_node.values():
            self._hosts.begin(host, setup, pickled, modules)

    def use(self, lease: Lease) -> None:
        """Hand out a slot, once the agents of all its nodes are ready."""
        for id in lease.nodes:
            host = self._hosts.by_node.get(id)
            if host is not None and host.ready:
                continue
            if host is None:
                node = next((node for node in connection.nodes() if node.id == id), None)
                if node is None:
                    self._leases.lost(id)  # it came, and went
                    return
                host = self._hosts.add(node.id, node.ip)
            self._when_looked(host, lease)
            return
        self._leases.free(lease)

    def _watch(self, greeted: set[str]) -> None:
        """Apart from the heartbeat: where the cluster's head does not answer, trials go on."""
        leaving: set[str] = set()
        while not self._hosts.ending.wait(HEARTBEAT_S):
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

    def _drain(self, id: str, events: list[Event]) -> None:
        """A node is about to go away: its trials save, and go on elsewhere."""
        self._leases.leave(id)
        if (host := self._hosts.by_node.get(id)) is not None:
            log.warning("node %s is being drained: its trials save, and go on elsewhere", host.name)
            self._on_leaves(host)

    def _greet(self, node: connection.Node, events: list[Event]) -> None:
        """A node has joined: its agent is ready before a trial is placed there."""
        if node.id not in self._hosts.by_node and self._begin is not None:
            self._when_looked(self._hosts.add(node.id, node.ip), None)

    def _when_looked(self, host: RemoteHost, lease: Lease | None) -> None:
        host.when_looked(lambda done: self._reactor.call_soon(lambda events: self._joined(host, lease)))

    def _joined(self, host: RemoteHost, lease: Lease | None) -> None:
        """A node that came later has looked around."""
        if self._begin is None:
            return
        if host not in self._hosts:  # it was given up meanwhile, and may be tried once more
            if lease is not None and lease in self._leases:
                self.use(lease)
            return
        if not host.ready:
            try:
                found = host.survey().found
            except TuneError as error:
                log.warning("not used: %s", error)
                self._hosts.give_up(host)
                if lease is not None and connection.is_alive(host.node):
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
