"""RayExecutor: the driver's end of a run on a cluster."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
import os
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle

from trainables.errors import CheckpointError, CheckpointNotFoundError, TransferError
from trainables.store import fs
from trainables.transfer.agent import AnyJob, Done, Failed
from trainables.transfer.open import shown
from trainables.wire import (
    CheckpointRef,
    Errored,
    Finished,
    Halt,
    Listening,
    Preempted,
    Published,
    PublishFailed,
    ToTrial,
)
from tuner.error import SettingError, TuneError
from tuner.executors.base import Dispatch, Event, Exited, Launch, Message, Resources
from tuner.executors.local.lines import terminal
from tuner.executors.local.shipping import pack, ship
from tuner.executors.ray import connection, sources
from tuner.executors.ray.carrying import Carrier, Landing, place_of_restored
from tuner.executors.ray.groups import across, deputy_of, meant_by, trial_of
from tuner.executors.ray.hosts import AgentError, Host
from tuner.executors.ray.inbox import Inbox
from tuner.executors.ray.leases import Lease, Leases
from tuner.executors.ray.line import Line
from tuner.executors.ray.messages import HEARTBEAT_S, Broken, Kill, Output, Place, Setup, Tell, Uploading, unpack_heard
from tuner.executors.ray.uploads import LOST, ClusterUploader
from tuner.syncer.uploader import Uploader

log = logging.getLogger(__name__)

_ADDRESS = re.compile(r"auto|[^\s/]+:\d+")
_KILLED = -9
_LAST_WORDS = (Finished, Errored, Preempted)
_WAIT_S = 60.0
_MAX_USELESS = 3
"""So often in a row an agent may end on a node that lives before a trial has said anything there."""


@dataclasses.dataclass(slots=True, eq=False)
class _Coming:
    """A checkpoint that is on its way here."""

    message: Message
    told: Message | None = None
    """What the loop is told of it, once that is known."""


@dataclasses.dataclass(slots=True, eq=False)
class _Attempt:
    launch: Launch
    ordered: Launch
    """As its host gets it."""
    lease: Lease
    host: Host
    others: list[Host] = dataclasses.field(default_factory=list)
    """Further hosts of its processes."""
    running: dict[str, Host] = dataclasses.field(default_factory=dict)
    """Its processes, as hosts call them, from their order to their end."""
    told: list[Tell | Kill] = dataclasses.field(default_factory=list)
    """Orders from before it was sent to its host."""
    sent: bool = False
    coming: deque[_Coming] = dataclasses.field(default_factory=deque)
    """Checkpoints of it that are on their way here."""
    landing: Landing = dataclasses.field(default_factory=Landing)
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


class RayExecutor:
    """Runs every attempt in a process of some node of a Ray cluster.

    Trials are placed by Ray: each holds a slot with its resources on one node, and slots are used again. A checkpoint
    is saved on the disk of the trial's node, below the same path as here, and copied here before anything depends on
    it; where the nodes share that directory nothing is copied.

    Args:
        address: of the cluster, "<ip>:<port>"; None: RAY_ADDRESS, or the one that runs on this machine. A process that
            called `ray.init` itself stays connected as it is.
        runtime_env: Ray's, for the processes of the nodes: what they install, environment variables.
        options: further keyword arguments of `ray.init`.

    Raises (when it is used) MissingExtraError, SettingError where there is no cluster.

    Example:
        >>> RayExecutor(address="10.0.0.1:6379")
        RayExecutor(address='10.0.0.1:6379')
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        runtime_env: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if address is not None and (not isinstance(address, str) or not _ADDRESS.fullmatch(address)):
            client = isinstance(address, str) and address.startswith("ray://")
            raise SettingError(
                f'RayExecutor(address={address!r}) is not accepted; accepted are None, "auto" and "<ip>:<port>"'
                + (" (Ray's client is not enough: start the script on a machine of the cluster)" if client else "")
            )
        if "address" in (options or {}):
            raise SettingError("RayExecutor(options={'address': ...}) is not accepted: it is RayExecutor(address=...)")
        self._address, self._runtime_env, self._options = address, runtime_env, dict(options or {})
        self._connected = self._ours = False
        self._be_new()

    def _be_new(self) -> None:
        """Nothing is known of any run: it may be used for another one."""
        self.say: Callable[[str], None] = log.info
        """Where people are told what they should know."""
        self.sync: Mapping[str, Any] = {}
        """How checkpoints come here: `syncer`, `options`, `ssh_key`, `ssh_port` of `open_backend`."""
        self.upload_to: Uploading | None = None
        """Where hosts copy their checkpoints themselves; None: they come here."""
        self.found: list[tuple[str, str, CheckpointRef, str]] = []
        """(host, trial directory, checkpoint, digest) of what lay on the nodes' own disks at the start."""
        self.keeps: Callable[[str, CheckpointRef], bool] = lambda dirname, ref: True
        """Whether a checkpoint in that trial directory is needed; asked of nodes that come while the run goes on."""
        self._inbox = Inbox()
        self._hosts: dict[str, Host] = {}
        self._leases = Leases(self._on_lease, time.monotonic)
        self._attempts: dict[str, _Attempt] = {}
        self._queued: deque[Launch] = deque()
        """Attempts whose slot was lost before they began."""
        self._soon: list[Event] = []
        self._place: Place | None = None
        self._begin: Callable[[Host], None] | None = None
        self._carrier = Carrier(lambda: self.sync)
        self._numbers = itertools.count(1)
        self._waits_since: float | None = None
        self._useless: Counter[str] = Counter()
        self._ending = threading.Event()
        self._beating: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"RayExecutor(address={self._address!r})"

    # --- the contract -----------------------------------------------------------------------------------

    def total(self) -> Resources:
        self._connect()
        found: dict[str, float] = {}
        for node in connection.nodes():
            for name, amount in node.resources.items():
                found[name] = found.get(name, 0.0) + amount
        return found

    def take_place(self, place: Place) -> None:
        """Look at every node, and end what is left of older owners there; fills `found`.

        Raises SettingError where a node cannot write to the experiment's directory.
        """
        self._connect()
        self._place = place
        self._leases.owner = place.id
        self._leases.end_older(place.older)
        hosts = [self._new_host(node) for node in connection.nodes()]
        for host in list(hosts):
            try:
                found = host.looked().found
            except AgentError:
                if self._is_alive(host.node):
                    raise
                hosts.remove(host)  # it died just now
                del self._hosts[host.node]
                continue
            self.found += [(host.node, dirname, ref, digest) for dirname, ref, digest in found]
        self._open_uploads([host for host in hosts if not host.shared])
        self._say_how()

    def _open_uploads(self, hosts: Sequence[Host]) -> None:
        """Have every host with a disk of its own look whether it can use the replica's place."""
        if self.upload_to is None:
            return
        pickled = cloudpickle.dumps(self.upload_to)
        waits = [(host, host.open_uploads(pickled)) for host in hosts]
        for host, wait in waits:
            try:
                wait()
            except Exception as error:  # whatever its library raises
                if self.upload_to.needed:
                    raise TuneError(f"node {host.name} cannot copy its checkpoints: {error}") from error
                self.say(f"{host.name} cannot copy its checkpoints itself, so they come here first: {error}")
                self.upload_to = None
                return

    def start(self, trainable: Any, *, lock_fds: Sequence[int] = (), marker: str = "", temporary: Path) -> None:
        self._connect()
        ray = connection.load()
        shipped = ship(trainable, Path(temporary))
        try:
            pickled, modules = ray.put(shipped.path.read_bytes()), ray.put(sources.collect())
        finally:
            shipped.path.unlink(missing_ok=True)
        uploading = b"" if self.upload_to is None else cloudpickle.dumps(self.upload_to)
        setup = Setup(shipped.imports, marker, Path(temporary), Path.cwd(), uploading=uploading)

        def begin(host: Host) -> None:
            def failed(error: BaseException) -> None:
                self._inbox.put(lambda events: self._fail(host, error, events))

            def begun() -> None:
                self._inbox.put(lambda events: self._listen(host))

            host.begin(setup, pickled, modules, begun, failed)

        self._begin = begin
        self._leases.meant = meant_by(trainable)
        for host in self._hosts.values():
            begin(host)

    def can_launch(self, resources: Resources, promised: Sequence[Resources] = ()) -> bool:
        return not self._queued and self._leases.has_room(resources, promised)

    def awaits_room(self) -> bool:
        return self._leases.asked

    def launch(self, launch: Launch) -> None:
        self._queued.append(launch)
        self._launch_queued()

    def _launch_queued(self) -> None:
        """Launch what there is a slot for: one that was promised may have gone with its node meanwhile."""
        while self._queued and self._leases.has_room(self._queued[0].resources, ()):
            self._launch(self._queued.popleft())

    def _launch(self, launch: Launch) -> None:
        lease = self._leases.take(launch.resources)
        host, *others = hosts = [self._hosts[node] for node in dict.fromkeys(lease.nodes)]
        job = across(launch.job, lease.nodes, {other.node: other.ip for other in hosts})
        launch = dataclasses.replace(launch, job=job)
        attempt = _Attempt(launch, self._told_apart(launch, lease, host), lease, host, others)
        self._attempts[attempt.trial_id] = attempt
        source = job.checkpoint_path
        if source is None or all(other.shared for other in hosts):
            self._send(attempt)
            return

        def supply() -> None:
            for other in hosts:
                if not other.shared:
                    self._supply(other, source, self._there_is(other, source), launch.digest)

        self._carrier.beside(
            host, supply, lambda error: self._inbox.put(lambda events: self._there(attempt, error, events))
        )

    def _there_is(self, host: Host, source: Path) -> Path:
        """Where a checkpoint of this host lies on another one."""
        within = host.shared or source.is_relative_to(self._root)
        return source if within else place_of_restored(self._root, source)

    def tell(self, trial_id: str, message: ToTrial) -> None:
        attempt = self._attempts.get(trial_id)
        if attempt is not None:
            self._order(attempt, Tell(trial_id, message))
        elif isinstance(message, Halt):
            self.kill(trial_id)  # it has not begun

    def kill(self, trial_id: str) -> None:
        attempt = self._attempts.get(trial_id)
        if attempt is None:
            for launch in [launch for launch in self._queued if launch.job.trial_id == trial_id]:
                self._queued.remove(launch)
                self._soon.append(Exited(trial_id, launch.job.attempt, _KILLED, "killed"))
            return
        if attempt.sent:
            _end_processes(attempt)
        elif attempt.exited is None:
            self._over(attempt, Exited(trial_id, attempt.number, _KILLED, "killed"), self._soon)

    def run_once(self, dispatch: Dispatch, timeout: float | None) -> None:
        self._flush()
        events, self._soon = self._soon, []
        now = time.monotonic()
        until = None if timeout is None else now + max(0.0, timeout)
        if (idle := self._leases.idle_until()) is not None:
            until = idle if until is None else min(until, idle)
        self._inbox.wait(0.0 if events else None if until is None else until - now, events)
        self._leases.tidy()
        self._launch_queued()
        self._say_who_waits()
        if events:
            dispatch(events)
        self._flush()

    def _say_who_waits(self) -> None:
        """Nothing runs, and Ray has no room: people should know why nothing happens."""
        if self._attempts or not (wanted := self._leases.wanted()):
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = time.monotonic()
        elif time.monotonic() - self._waits_since > _WAIT_S:
            self._waits_since = math.inf  # once
            self.say(f"nothing runs: no node has had room for a trial that asks for {wanted}, for {_WAIT_S:.0f} s")

    def wake(self) -> None:
        self._inbox.put(lambda events: None)

    def owned_processes(self) -> list[tuple[int, int]]:
        return []  # agents end with Ray's job, or when they hear nothing of it any more

    def shutdown(self, *, grace_s: float = 0.0) -> None:
        if not self._connected:
            return
        deadline = time.monotonic() + grace_s
        while self._attempts and (left := deadline - time.monotonic()) > 0:
            self.run_once(lambda events: None, left)
        self._carrier.close()
        for host in self._hosts.values():
            host.end()
        for host in self._hosts.values():
            host.ended()
        self._leases.close()
        self._attempts.clear()

    def release(self) -> None:
        """Let go of the nodes: until then their stores do what they are asked for. Doing it twice is no error."""
        if not self._connected:
            return
        self._ending.set()
        self._leases.close()
        for host in self._hosts.values():
            host.release()
        self._hosts.clear()
        if self._ours:
            connection.load().shutdown()
        self._connected = self._ours = False
        self._be_new()

    # --- the store of every host --------------------------------------------------------------------------

    def delete(self, host: str, path: Path) -> bool:
        """Delete a checkpoint here and on every host that has it; from any thread. `Delete` of the deleter."""
        from trainables.store import delete as store_delete

        done = store_delete.delete(path)
        for other in list(self._hosts.values()):
            if other.holds(path):
                done = other.delete(path) and done
        return done

    @property
    def experiment(self) -> str:
        """Its id, with which those of its trials begin."""
        assert self._place is not None, "take_place() comes first"
        return self._place.experiment

    @property
    def uploads(self) -> bool:
        """Hosts copy their checkpoints to the replica themselves."""
        return self.upload_to is not None

    def holds(self, path: Path) -> bool:
        """A host that lives has the checkpoint that would lie at that path here."""
        return any(host.holds(path) for host in self._hosts.values() if not host.lost)

    def uploader(self, home: Uploader) -> Uploader:
        """The replica's uploader, of which hosts do the part that concerns their own files."""
        return ClusterUploader(home, self._upload, lambda timeout: self.run_once(lambda events: None, timeout))

    def _upload(self, path: Path, job: AnyJob, then: Callable[[Done | Failed], None]) -> bool:
        if fs.is_dir(path):
            return False
        host = next((host for host in self._hosts.values() if host.holds(path)), None)

        def answered(answer: Done | Failed) -> None:
            then(answer)
            self.wake()

        if host is None:
            answered(Failed(0, LOST, f"{path}: the host that had it is gone"))
        else:
            host.upload(job, answered)
        return True

    def _supply(self, host: Host, source: Path, target: Path, digest: str) -> None:
        """Have the checkpoint of an attempt on its host, whole, from wherever it is nearest.

        Raises CheckpointError when there is none that is whole, TransferError.
        """
        if fs.is_dir(source):
            self._carrier.bring_there(host, source, target, self._root)
        elif host.check(target, digest) is not None:
            self._supply_from_afar(host, target, digest)

    def _supply_from_afar(self, host: Host, target: Path, digest: str) -> None:
        if self.uploads:
            key = f"{self._root.name}/{target.relative_to(self._root).as_posix()}"
            try:
                host.fetch(key, target, digest)
                return
            except CheckpointError as error:
                log.info("%s: not in the replica: %s", target, error)
        other = next((other for other in list(self._hosts.values()) if other is not host and other.holds(target)), None)
        if other is None:
            raise CheckpointNotFoundError(f"{target}: no host has it, and no replica")
        self._carrier.bring_here(other, target, self._root, digest)
        self._carrier.bring_there(host, target, target, self._root)

    def bring(self, host: str, dirname: str, ref: CheckpointRef, digest: str) -> str | None:
        """Copy a checkpoint of another host here, now; why that was not possible, or None."""
        try:
            self._carrier.bring_here(self._hosts[host], self._root / dirname / ref.name, self._root, digest)
        except (TransferError, CheckpointError, OSError) as error:
            return str(error)
        return None

    def drop(self, host: str, dirname: str, ref: CheckpointRef) -> None:
        """Delete what another host has and nobody needs."""
        self._hosts[host].delete(self._root / dirname / ref.name)

    # --- nodes --------------------------------------------------------------------------------------------

    @property
    def _root(self) -> Path:
        assert self._place is not None, "take_place() comes first"
        return self._place.root

    def _connect(self) -> None:
        if not self._connected:
            self._ours = connection.connect(self._address, self._options)
            self._connected = True

    def _is_alive(self, node: str) -> bool:
        return any(each.id == node for each in connection.nodes())

    def _new_host(self, node: connection.Node) -> Host:
        assert self._place is not None
        busy = frozenset(attempt.launch.job.directory.name for attempt in self._attempts.values())
        number = next(self._numbers)
        host = Host(node.id, node.ip, self._runtime_env, self._place, number=number, busy=busy)
        self._hosts[node.id] = host
        if self._beating is None:
            self._beating = threading.Thread(target=self._beat, name="ray-heartbeat", daemon=True)
            self._beating.start()
            threading.Thread(target=self._watch_nodes, name="ray-nodes", daemon=True).start()
        return host

    def _on_lease(self, lease: Lease, answer: Any) -> None:
        """From any thread."""
        self._inbox.put(lambda events: self._granted(lease, answer))

    def _granted(self, lease: Lease, answer: Any) -> None:
        if self._leases.on_granted(lease, answer):
            self._use(lease)

    def _use(self, lease: Lease) -> None:
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
                host = self._new_host(node)
            self._when_looked(host, lease)
            return
        self._leases.free(lease)

    def _when_looked(self, host: Host, lease: Lease | None) -> None:
        host.when_looked(lambda done: self._inbox.put(lambda events: self._joined(host, lease)))

    def _joined(self, host: Host, lease: Lease | None) -> None:
        """A node that came later has looked around."""
        if self._hosts.get(host.node) is not host or self._begin is None:
            return
        if not host.ready:
            try:
                found = host.looked().found
            except TuneError as error:
                log.warning("not used: %s", error)
                del self._hosts[host.node]
                host.release()
                if lease is not None and self._is_alive(host.node):
                    self._leases.keep_away(lease)
                elif lease is not None:
                    self._leases.lost(host.node)
                return
            self._begin(host)
            # It was here before: nobody needs what it saved that has not come here, and what was deleted meanwhile.
            for path in [self._root / dirname / ref.name for dirname, ref, _ in found if not self.keeps(dirname, ref)]:
                self._carrier.beside(host, partial(_deleted, host, path), lambda error: None)
        if lease is not None:
            self._use(lease)

    def _say_how(self) -> None:
        count = f"{len(self._hosts)} node{'s' if len(self._hosts) != 1 else ''}"
        others = [host for host in self._hosts.values() if not host.shared]
        if others:
            way = self._carrier.way(others[0], self._root)
            if self.upload_to is not None:
                place = shown(str(self.upload_to.arguments["place"]))
                self.say(f"{count}; each copies its checkpoints to {place} itself")
            else:
                self.say(f"{count}; checkpoints of {others[0].name} are copied here {way}")
        else:
            self.say(f"{count}; every one sees {self._root}, so checkpoints are not copied")

    def _fail(self, host: Host, error: BaseException, events: list[Event]) -> None:
        """A node that lives cannot run trials: on others they would fail too."""
        if self._hosts.get(host.node) is not host:
            return
        if connection.is_death(error):
            self._lost(host, error, events)
        else:
            text = str(error).strip().splitlines()
            raise TuneError(f"{host.name} cannot run trials: {text[-1] if text else repr(error)}") from error

    def _beat(self) -> None:
        ending, hosts = self._ending, self._hosts
        while not ending.wait(HEARTBEAT_S):
            for host in list(hosts.values()):
                host.beat()

    def _watch_nodes(self) -> None:
        """Apart from the heartbeat: where the cluster's head does not answer, trials go on."""
        ending, inbox = self._ending, self._inbox
        known: set[str] = set()
        greeted = set(self._hosts)
        while not ending.wait(HEARTBEAT_S):
            try:
                leaving, there = connection.draining(), connection.nodes()
            except Exception as error:  # whatever Ray raises: the next look may do better
                log.debug("Ray does not say which nodes are drained: %s", error)
                continue
            for node in leaving - known:
                inbox.put(partial(self._drain, node))
            known |= leaving
            for new in there:
                if new.id not in greeted:
                    inbox.put(partial(self._greet, new))
            greeted |= {new.id for new in there}

    def _greet(self, node: connection.Node, events: list[Event]) -> None:
        """A node has joined: its agent is ready before a trial is placed there."""
        if node.id not in self._hosts and self._begin is not None:
            host = self._new_host(node)
            self._when_looked(host, None)

    def _drain(self, node: str, events: list[Event]) -> None:
        """A node is about to go away: its trials save, and go on elsewhere."""
        self._leases.leave(node)
        if (host := self._hosts.get(node)) is None:
            return
        log.warning("node %s is being drained: its trials save, and go on elsewhere", host.name)
        for attempt in self._attempts.values():
            if host in (attempt.host, *attempt.others) and attempt.exited is None:
                self._order(attempt, Tell(attempt.trial_id, Halt()))

    def _listen(self, host: Host) -> None:
        host.listen(lambda answer: self._inbox.put(lambda events: self._heard(host, answer, events)))
        if (line := host.line) is not None:
            self._inbox.watch(line.fileno(), partial(self._read, host, line))

    def _read(self, host: Host, line: Line, events: list[Event]) -> None:
        data = line.receive()
        if data is None:
            self._inbox.forget(line.fileno())
            self._heard(host, ConnectionError(f"the line to {host.name} has ended"), events)
        elif not host.lost:
            self._heard(host, data, events)

    def _heard(self, host: Host, answer: Any, events: list[Event]) -> None:
        if isinstance(answer, BaseException):
            self._lost(host, answer, events)
            return
        for heard in unpack_heard(answer):
            if isinstance(heard, Broken):
                raise TuneError(f"{host.name} cannot run trials: {heard.reason}")
            attempt = self._attempts.get(trial_of(heard.trial_id))
            if attempt is None or attempt.number != heard.attempt or attempt.running.get(heard.trial_id) is not host:
                continue  # of an attempt that was given up
            host.useful = True
            if isinstance(heard, Output):
                _write_down(attempt, host, heard)
            elif heard.trial_id != attempt.trial_id:
                self._heard_deputy(attempt, heard, events)
            elif isinstance(heard, Exited):
                del attempt.running[heard.trial_id]
                self._over(attempt, heard, events)
            elif attempt.exited is not None:
                continue  # it was lost with another host, and what it says counts no more
            elif isinstance(heard, Message) and isinstance(heard.body, Listening):
                self._send_deputies(attempt, heard.body.port)
            elif isinstance(heard, Message) and isinstance(heard.body, _LAST_WORDS):
                attempt.last_word = heard
            elif isinstance(heard, Message) and isinstance(heard.body, Published) and not host.shared:
                if self.uploads:
                    host.has(attempt.launch.job.directory / heard.body.ref.name)
                    events.append(heard)
                else:
                    self._fetch(attempt, heard, heard.body)
            else:
                events.append(heard)

    def _lost(self, host: Host, error: BaseException, events: list[Event]) -> None:
        """Its agent, or the whole node, is gone: what ran there is lost."""
        if self._hosts.get(host.node) is not host or self._ending.is_set():
            return
        log.warning("node %s is lost: %s", host.name, str(error).splitlines()[0] if str(error) else repr(error))
        del self._hosts[host.node]
        host.lost = True
        host.release()  # if Ray has lost sight of it only
        self._carrier.lost(host)
        self._leases.lost(host.node)
        if host.useful:
            del self._useless[host.node]
        else:
            self._useless[host.node] += 1
            if self._useless[host.node] >= _MAX_USELESS and self._is_alive(host.node):
                raise TuneError(f"{host.name}: its agent ends before a trial has begun: {error}") from error
        for attempt in [each for each in self._attempts.values() if host in (each.host, *each.others)]:
            attempt.running = {name: where for name, where in attempt.running.items() if where is not host}
            last = None if attempt.last_word is None else attempt.last_word.body
            if host is attempt.host or attempt.exited is None or isinstance(last, Errored):
                attempt.landing.give_up()
                attempt.coming, attempt.last_word = deque(), None  # whatever it said, what it saved last is lost
                attempt.exited = Exited(attempt.trial_id, attempt.number, _KILLED, "lost")
            self._over(attempt, attempt.exited, events)

    # --- attempts -----------------------------------------------------------------------------------------

    def _send_deputies(self, attempt: _Attempt, port: int) -> None:
        """Start what its first process waits for, on the other nodes."""
        for number, host in enumerate(attempt.others, 1):
            job = deputy_of(attempt.launch.job, number, port)
            launch = dataclasses.replace(attempt.launch, job=job, timeout_s=None)  # the first one's ends all
            attempt.running[launch.job.trial_id] = host
            host.orders.append(self._told_apart(launch, attempt.lease, host))

    def _heard_deputy(self, attempt: _Attempt, heard: Event, events: list[Event]) -> None:
        """What comes of the others is told by the first process, unless one cannot even reach that."""
        if isinstance(heard, Message) and isinstance(heard.body, Errored):
            if attempt.last_word is None:
                attempt.last_word = dataclasses.replace(heard, trial_id=attempt.trial_id)
            _end_processes(attempt)
        elif isinstance(heard, Exited):
            del attempt.running[heard.trial_id]
            if attempt.exited is not None:
                self._over(attempt, attempt.exited, events)

    def _told_apart(self, launch: Launch, lease: Lease, host: Host) -> Launch:
        """The launch as its host gets it: nothing in it needs the user's modules before the trial loads them."""
        environment = dict(launch.environment)
        if lease.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(lease.gpus.get(host.node, ()))
        source = launch.job.checkpoint_path
        checkpoint = None if source is None else self._there_is(host, source)
        job = dataclasses.replace(
            launch.job, checkpoint_path=checkpoint, temporary=host.temporary(launch.job.temporary)
        )
        return dataclasses.replace(
            launch,
            resources={"cpu": float(launch.resources.get("cpu", 1.0))},
            packed=pack(job, f"the config of trial {job.trial_id}"),
            job=dataclasses.replace(job, config={}),
            tee=launch.stdout is not None and (launch.tee or not host.shared),
            environment=environment,
        )

    def _there(self, attempt: _Attempt, problem: Exception | None, events: list[Event]) -> None:
        """The checkpoint that it starts from is on its host, or cannot be brought there."""
        if self._attempts.get(attempt.trial_id) is not attempt or attempt.exited is not None:
            return
        if problem is None:
            self._send(attempt)
        else:
            log.warning("trial %s cannot start on %s: %s", attempt.trial_id, attempt.host.name, problem)
            why = "unusable" if isinstance(problem, CheckpointError) else "lost"
            self._over(attempt, Exited(attempt.trial_id, attempt.number, _KILLED, why), events)

    def _send(self, attempt: _Attempt) -> None:
        attempt.sent = True
        attempt.running[attempt.trial_id] = attempt.host
        attempt.host.orders += [attempt.ordered, *attempt.told]

    def _order(self, attempt: _Attempt, order: Tell | Kill) -> None:
        (attempt.host.orders if attempt.sent else attempt.told).append(order)

    def _fetch(self, attempt: _Attempt, message: Message, body: Published) -> None:
        """Copy what was just saved here; then it is told."""
        coming = _Coming(message)
        attempt.coming.append(coming)
        path = attempt.launch.job.directory / body.ref.name

        def arrived(problem: Exception | None) -> None:
            self._inbox.put(lambda events: self._arrived(attempt, coming, body, problem, events))

        host, landing = attempt.host, attempt.landing
        self._carrier.beside(
            host, lambda: self._carrier.bring_here(host, path, self._root, body.digest, landing), arrived
        )

    def _arrived(
        self, attempt: _Attempt, coming: _Coming, body: Published, problem: Exception | None, events: list[Event]
    ) -> None:
        if self._attempts.get(attempt.trial_id) is not attempt or coming not in attempt.coming:
            return
        if problem is None:
            coming.told = coming.message
        else:
            failed = PublishFailed(body.ref, f"it could not be copied from {attempt.host.name}: {problem}")
            path = attempt.launch.job.directory / body.ref.name
            self._carrier.beside(attempt.host, partial(_deleted, attempt.host, path), lambda error: None)
            coming.told = dataclasses.replace(coming.message, body=failed)
        while attempt.coming and (told := attempt.coming[0].told) is not None:
            attempt.coming.popleft()  # in the order in which they were saved, whichever came first
            events.append(told)
        if attempt.exited is not None and not attempt.coming:
            self._over(attempt, attempt.exited, events)

    def _over(self, attempt: _Attempt, exited: Exited, events: list[Event]) -> None:
        attempt.exited = attempt.exited or exited
        if attempt.running:
            _end_processes(attempt)  # those on other nodes
            return
        if not attempt.given_back:
            attempt.given_back = True
            self._leases.put_back(attempt.lease)
        if not attempt.coming:
            del self._attempts[attempt.trial_id]
            if attempt.last_word is not None:
                events.append(attempt.last_word)
            events.append(attempt.exited)

    def _flush(self) -> None:
        for host in self._hosts.values():
            host.flush()


def _deleted(host: Host, path: Path) -> None:
    host.delete(path)


def _end_processes(attempt: _Attempt) -> None:
    for name, host in attempt.running.items():
        host.orders.append(Kill(name))


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
