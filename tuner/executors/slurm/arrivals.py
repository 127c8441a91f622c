"""Agents of jobs as they come to the driver: met, looked around, made ready, and lost."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from trainables.net.listener import Listener
from tuner.error import SettingError, TuneError
from tuner.executors.base import Event
from tuner.executors.host_agent.line import AgentLine
from tuner.executors.reactor import Reactor
from tuner.executors.remote.host import RemoteHost
from tuner.executors.remote.hosts import Found, HostAgents
from tuner.executors.slurm.agent_handle import SocketHandle
from tuner.executors.slurm.agent_listener import listen_for_agents
from tuner.executors.slurm.job_queue import JobQueue
from tuner.executors.slurm.meeting import AgentHello
from tuner.executors.slurm.rooms import AgentRooms

log = logging.getLogger(__name__)

_STAY_S = 3.0
_USELESS, _LOST_EARLY = 3, 10
"""So many agents in a row may not start, or end before a trial has begun there."""


class Arrivals:
    """It belongs to the driver's thread.

    Args:
        unneeded: called with what an agent found on its disk, once it has looked around.
        lost: called with a host that is gone.
        leaves: called with the node of an agent whose job is about to be ended, and whether that is now.
    """

    def __init__(
        self,
        reactor: Reactor,
        rooms: AgentRooms,
        *,
        found: Callable[[RemoteHost, list[Found]], None],
        lost: Callable[[RemoteHost, list[Event]], None],
        leaves: Callable[[str, bool], None],
    ) -> None:
        self._reactor, self._rooms = reactor, rooms
        self._on_found, self._on_lost, self._on_leaves = found, lost, leaves
        self.handles: dict[str, SocketHandle] = {}
        self.listener: Listener | None = None
        self._hosts: HostAgents | None = None
        self._jobs: JobQueue | None = None
        self._begin: Callable[[RemoteHost], None] | None = None
        self._not_started = self._lost_early = 0

    def listen(self, ip: str, hosts: HostAgents, jobs: JobQueue) -> Listener:
        """Agents may come. Raises OSError."""
        self._hosts, self._jobs = hosts, jobs
        self.listener = listen_for_agents(ip, self._met)
        return self.listener

    def begin(self, begin: Callable[[RemoteHost], None]) -> None:
        """Have those that are there, and come, get ready for trials."""
        assert self._hosts is not None
        self._begin = begin
        for host in self._hosts.by_node.values():
            self._when_looked(host)

    def stay(self, until: float) -> list[str]:
        """Have agents wait until then for the next driver; the ids of their jobs."""
        asked: list[Future[Any]] = []
        jobs: dict[str, None] = {}
        for node, room in self._rooms.by_node.items():
            if not room.leaving:
                jobs[room.hello.job] = None
                asked.append(self.handles[node].stay(until))
        wait(asked, _STAY_S)
        return list(jobs)

    def lost(self, host: RemoteHost) -> None:
        """It is gone, and nobody has ended it. Raises TuneError when that is not worth another try."""
        room = self._rooms.by_node.get(host.node)
        self.forget(host.node)
        early = room is not None and room.ready and not room.leaving and not host.useful
        self._lost_early = self._lost_early + 1 if early else 0
        if self._lost_early >= _LOST_EARLY:
            raise TuneError(
                f"{_LOST_EARLY} agents in a row ended before a trial had begun; the last one on {host.name}"
            )

    def forget(self, node: str) -> None:
        """It is gone, or is given up."""
        room = self._rooms.lost(node)
        self.handles.pop(node, None)
        if room is not None and self._jobs is not None:
            self._jobs.lost(room.hello.job, node)

    def close(self) -> None:
        """Nobody comes any more."""
        if self.listener is not None:
            self.listener.close()

    def _met(self, hello: AgentHello, ip: str, line: AgentLine) -> None:
        """Somebody who has the key has come; from any thread."""
        self._reactor.call_soon(lambda events: self._came(hello, ip, line))

    def _came(self, hello: AgentHello, ip: str, line: AgentLine) -> None:
        assert self._jobs is not None and self._hosts is not None
        if not self._jobs.met(hello.job, hello.node):
            line.dispose()
            return

        def told(number: int) -> None:
            self._reactor.call_soon(lambda events: self._on_leaves(hello.node, number != signal.SIGUSR1))

        self.handles[hello.node] = SocketHandle(line, told)
        self._rooms.add(hello)
        if hello.end is None:
            self._jobs.look(now=True)  # an older Slurm says it in the queue only
        host = self._hosts.add(hello.node, ip)
        if self._begin is not None:
            self._when_looked(host)

    def _when_looked(self, host: RemoteHost) -> None:
        host.when_looked(lambda done: self._reactor.call_soon(lambda events: self._looked(host, events)))

    def _looked(self, host: RemoteHost, events: list[Event]) -> None:
        """An agent has looked around: trials may run there. Raises SettingError where they never can."""
        if self._hosts is None or host not in self._hosts or self._begin is None:
            return
        try:
            found = host.survey().found
        except SettingError:
            raise
        except TuneError as error:
            self._not_started += 1
            if self._not_started >= _USELESS:
                raise TuneError(f"{error}. {_USELESS} in a row did not") from error
            log.warning("not used: %s", error)
            self._hosts.give_up(host)
            self._on_lost(host, events)
            return
        self._not_started = 0
        self._begin(host)
        self._on_found(host, [(host.node, *each) for each in found])
        if (room := self._rooms.by_node.get(host.node)) is not None:
            self._rooms.open(room)
