"""One run on other hosts: its attempts, and what lies on the disks of the hosts, whoever started their agents."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from trainables.starting import start_thread
from trainables.transfer.client import TransferClient
from trainables.transfer.open import shown
from trainables.transfer.transfer_jobs import AnyJob, Done, JobFailed
from trainables.wire import CheckpointRef
from tuner.executors.base import Event
from tuner.executors.reactor import Reactor
from tuner.executors.remote.handle import AgentHandle
from tuner.executors.remote.host import RemoteHost
from tuner.executors.remote.hosts import Found, HostAgents
from tuner.executors.remote.remote_attempts import RemoteAttempts, SlotSource
from tuner.executors.remote.stores import Stores
from tuner.executors.remote.transfers import Carrier
from tuner.executors.remote.uploads import ClusterUploader
from tuner.executors.remote_hosts import ExperimentPlace, Uploading

log = logging.getLogger(__name__)


class RemoteRun(Stores):
    """The parts of a run, put together. An executor derives its own from this, which then is its `RemoteHosts`.

    Args:
        is_alive: whether a node still lives, whatever became of its agent.
        wait: lets the executor do what there is to do, for so many seconds at most.
    """

    def __init__(
        self,
        slots: SlotSource,
        start: Callable[[str], AgentHandle],
        is_alive: Callable[[str], bool],
        wait: Callable[[float | None], None],
    ) -> None:
        self._wait = wait
        self.found: Sequence[Found] = []
        self.experiment = ""
        self.say: Callable[[str], None] = log.info
        self.keeps: Callable[[str, CheckpointRef], bool] = lambda dirname, ref: True
        self.upload_to: Uploading | None = None
        self.reactor = Reactor()
        self.hosts = HostAgents(
            self.reactor,
            start,
            is_alive=is_alive,
            heard=lambda host, heard, events: self.attempts.heard(host, heard, events),
            lost=self.lost,
            busy=lambda: self.attempts.directories(),
        )
        self._sync: Mapping[str, Any] = {}
        super().__init__(self.hosts.by_node, Carrier(lambda: self._sync))
        self.attempts = RemoteAttempts(self.hosts.by_node, self.reactor, slots, self, self._carrier)
        self._way: Future[str] | None = None
        """How checkpoints come here, as it will be said."""

    @abstractmethod
    def survey(self, place: ExperimentPlace) -> list[Found]:
        """Start an agent on every node, and say what lies there."""

    def expect(self, attempts: float) -> None:
        """Nodes are there, or not, however many attempts wait."""

    def take_place(
        self,
        place: ExperimentPlace,
        *,
        sync: Mapping[str, Any],
        upload_to: Uploading | None,
        keeps: Callable[[str, CheckpointRef], bool],
        say: Callable[[str], None],
    ) -> None:
        self._sync, self.upload_to, self.keeps, self.say = sync, upload_to, keeps, say
        self.experiment, self.root = place.experiment, place.root
        self.found = self.survey(place)
        if self.upload_to is not None and (problem := self.hosts.open_uploads(self.upload_to)) is not None:
            self.say(problem)
            self.upload_to = None
        self.uploads = self.upload_to is not None
        self._say_how()

    def uploader(self, home: TransferClient) -> TransferClient:
        def send(path: Path, job: AnyJob, then: Callable[[Done | JobFailed], None]) -> bool:
            def answered(answer: Done | JobFailed) -> None:
                then(answer)
                self.reactor.wake()

            return self.upload(path, job, answered)

        return ClusterUploader(home, send, self._wait)

    def lost(self, host: RemoteHost, events: list[Event]) -> None:
        """A host is gone."""
        self._carrier.lost(host)
        self.attempts.lost(host, events)

    def end_trials(self) -> None:
        """When it returns, no process of a trial is left; stores still do what they are asked for."""
        self.say_way(wait=True)
        self._carrier.close()
        self.hosts.end_trials()
        self.attempts.forget()

    def say_way(self, *, wait: bool = False) -> None:
        """Say how checkpoints come here, once that is known, or wait for it. Raises what is wrong with a chosen way."""
        if self._way is not None and (wait or self._way.done()):
            way, self._way = self._way, None
            self.say(way.result())

    def _say_how(self) -> None:
        hosts = self.hosts.by_node.values()
        count = f"{len(hosts)} node{'s' if len(hosts) != 1 else ''}"
        others = [host for host in hosts if not host.shared]
        if not others:
            self.say(f"{count}; every one sees {self.root}, so checkpoints are not copied between nodes")
        elif self.upload_to is not None:
            self.say(f"{count}; each copies its checkpoints to {shown(str(self.upload_to.arguments['place']))} itself")
        else:
            self._way = Future()
            start_thread(self._find_way, name="tuner-way", args=(count, others[0], self._way))
            self.say_way(wait=self._carrier.chosen)

    def _find_way(self, count: str, host: RemoteHost, found: Future[str]) -> None:
        """Beside the start, which an ssh that takes a while would hold up."""
        try:
            way = self._carrier.way(host, self.root)
            found.set_result(f"{count}; checkpoints of {host.name} are copied here {way}")
        except Exception as error:  # whatever the library of a place raises: it is raised where the result is awaited
            found.set_exception(error)
        self.reactor.wake()
