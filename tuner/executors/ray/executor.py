"""RayExecutor: the driver's end of a run on a cluster."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import cloudpickle

from trainables.starting import start_thread
from trainables.transfer.client import TransferClient
from trainables.transfer.open import shown
from trainables.transfer.transfer_jobs import AnyJob, Done, JobFailed
from trainables.wire import Answer, CheckpointRef, Report, ToTrial
from tuner.error import SettingError
from tuner.executors.base import Dispatch, Event, Executor, Launch, Message, Resources
from tuner.executors.local.pickled import write_trainable
from tuner.executors.ray import connection, groups, sources
from tuner.executors.ray.attempts import Attempts
from tuner.executors.ray.host import Host
from tuner.executors.ray.leases import Lease, Leases
from tuner.executors.ray.nodes import Found, Nodes
from tuner.executors.ray.protocol import OWNER_FILE, Setup
from tuner.executors.ray.stores import Stores
from tuner.executors.ray.transfers import Carrier
from tuner.executors.ray.uploads import ClusterUploader
from tuner.executors.reactor import Reactor
from tuner.executors.remote_hosts import ExperimentPlace, Uploading

log = logging.getLogger(__name__)

_ADDRESS = re.compile(r"auto|[^\s/]+:\d+")
_WAIT_S = 60.0


class RayExecutor(Executor):
    """Runs every attempt in a process of some node of a Ray cluster.

    Trials are placed by Ray: each holds a slot with its resources on one node, and slots are used again. A checkpoint
    is saved on the disk of the trial's node, below the same path as here, and copied here before anything depends on
    it; where the nodes share that directory nothing is copied.

    Args:
        address: of the cluster, "<ip>:<port>"; None: RAY_ADDRESS, or the one that runs on this machine. A process that
            called `ray.init` itself stays connected as it is.
        runtime_env: Ray's, for the processes of the nodes: what they install, environment variables.
        options: further keyword arguments of `ray.init`.

    Raises SettingError for what is no address and no dict; when it is used, MissingExtraError, and SettingError for a
    `runtime_env` that Ray does not take and where there is no cluster.

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
        for name, given, accepted in (
            ("runtime_env", runtime_env, "None and a dict with Ray's keys, as {'pip': [...], 'env_vars': {...}}"),
            ("options", options, "None and a dict of keyword arguments of ray.init"),
        ):
            if given is not None and not (isinstance(given, Mapping) and all(isinstance(key, str) for key in given)):
                raise SettingError(f"RayExecutor({name}={given!r}) is not accepted; accepted are {accepted}")
        if "address" in (options or {}):
            raise SettingError("RayExecutor(options={'address': ...}) is not accepted: it is RayExecutor(address=...)")
        self._address, self._runtime_env, self._options = address, runtime_env, dict(options or {})
        self._connected = self._ours = False
        self._be_new()

    def _be_new(self) -> None:
        """Nothing is known of any run: it may be used for another one."""
        self._say: Callable[[str], None] = log.info
        self._sync: Mapping[str, Any] = {}
        self._upload_to: Uploading | None = None
        self._keeps: Callable[[str, CheckpointRef], bool] = lambda dirname, ref: True
        self.found: Sequence[Found] = []
        self.experiment = ""
        hosts: dict[str, Host] = {}
        self._hosts: Mapping[str, Host] = hosts
        self._reactor = Reactor()
        self._leases = Leases(self._on_lease, time.monotonic)
        self._carrier = Carrier(lambda: self._sync)
        self._stores = Stores(hosts, self._carrier)
        self._attempts = Attempts(hosts, self._reactor, self._leases, self._stores, self._carrier)
        self._nodes = Nodes(
            hosts,
            self._reactor,
            self._leases,
            self._stores,
            runtime_env=self._runtime_env,
            heard=self._attempts.heard,
            leaves=self._attempts.halt_on,
            lost=self._lost,
            busy=self._attempts.directories,
            keeps=lambda dirname, ref: self._keeps(dirname, ref),
        )
        self._waits_since: float | None = None
        self._way: Future[str] | None = None
        """How checkpoints come here, as it will be said."""
        self._unanswered = 0
        """Results of a batch that their trials have no answer to yet."""

    def __repr__(self) -> str:
        return f"RayExecutor(address={self._address!r})"

    # --- Executor ---------------------------------------------------------------------------------------

    def total(self) -> Resources:
        self._connect()
        found: dict[str, float] = {}
        for node in connection.nodes():
            for name, amount in node.resources.items():
                found[name] = found.get(name, 0.0) + amount
        return found

    def start(self, trainable: Any, *, lock_fds: Sequence[int] = (), marker: str = "", temporary: Path) -> None:
        self._connect()
        ray = connection.load()
        (Path(temporary) / OWNER_FILE).write_text(marker)
        written = write_trainable(trainable, Path(temporary))
        try:
            pickled, modules = ray.put(written.path.read_bytes()), ray.put(sources.collect())
        finally:
            written.path.unlink(missing_ok=True)
        uploading = b"" if self._upload_to is None else cloudpickle.dumps(self._upload_to)
        self._leases.meant = groups.meant_by(trainable)
        self._nodes.begin(
            Setup(written.imports, marker, Path(temporary), Path.cwd(), uploading=uploading), pickled, modules
        )

    def can_launch(self, resources: Resources, promised: Sequence[Resources] = ()) -> bool:
        return not self._attempts.queued and self._leases.has_room(resources, promised)

    def awaits_room(self) -> bool:
        return self._leases.asked

    def launch(self, launch: Launch) -> None:
        self._attempts.launch(launch)

    def tell(self, trial_id: str, message: ToTrial) -> None:
        self._attempts.tell(trial_id, message)
        if type(message) is Answer:
            self._unanswered -= 1
            if not self._unanswered:
                self._flush()  # they go on while the last result is written down

    def kill(self, trial_id: str) -> None:
        self._attempts.kill(trial_id)

    def run_once(self, dispatch: Dispatch, timeout: float | None) -> None:
        self._flush()
        events = self._attempts.take_ended()
        now = time.monotonic()
        until = None if timeout is None else now + max(0.0, timeout)
        if (idle := self._leases.idle_until()) is not None:
            until = idle if until is None else min(until, idle)
        self._reactor.wait(0.0 if events else None if until is None else until - now, events)
        self._leases.tidy()
        self._attempts.launch_queued()
        self._say_who_waits()
        self._say_way()
        if events:
            self._unanswered = sum(type(event) is Message and type(event.body) is Report for event in events)
            dispatch(events)
        self._flush()

    def wake(self) -> None:
        self._reactor.call_soon(lambda events: None)

    def owned_processes(self) -> list[tuple[int, int]]:
        return []  # agents end with Ray's job, or when they hear nothing of it any more

    def shutdown(self, *, grace_s: float = 0.0) -> None:
        if not self._connected:
            return
        deadline = time.monotonic() + grace_s
        while self._attempts and (left := deadline - time.monotonic()) > 0:
            self.run_once(lambda events: None, left)
        self._say_way(wait=True)
        self._carrier.close()
        self._nodes.end_trials()
        self._leases.close()
        self._attempts.forget()

    # --- RemoteHosts ------------------------------------------------------------------------------------

    @property
    def remote_hosts(self) -> RayExecutor:
        return self

    def check_fits(self, resources: Resources, trainable: Any) -> None:
        self._connect()
        groups.check_fits(resources, [node.resources for node in connection.nodes()], trainable)

    def take_place(
        self,
        place: ExperimentPlace,
        *,
        sync: Mapping[str, Any],
        upload_to: Uploading | None,
        keeps: Callable[[str, CheckpointRef], bool],
        say: Callable[[str], None],
    ) -> None:
        self._connect()
        self._sync, self._upload_to, self._keeps, self._say = sync, upload_to, keeps, say
        self.experiment, self._stores.root = place.experiment, place.root
        self._leases.owner = place.id
        self._leases.end_older(place.older)
        self.found = self._nodes.look(place)
        if self._upload_to is not None and (problem := self._nodes.open_uploads(self._upload_to)) is not None:
            self._say(problem)
            self._upload_to = None
        self._stores.replicated = self._upload_to is not None
        self._say_how()

    @property
    def uploads(self) -> bool:
        return self._stores.replicated

    def uploader(self, home: TransferClient) -> TransferClient:
        return ClusterUploader(home, self._upload, lambda timeout: self.run_once(lambda events: None, timeout))

    def holds(self, path: Path) -> bool:
        return self._stores.holds(path)

    def delete(self, host: str, path: Path) -> bool:
        return self._stores.delete(path)

    def bring(self, host: str, dirname: str, ref: CheckpointRef, digest: str) -> str | None:
        return self._stores.bring(host, dirname, ref, digest)

    def drop(self, host: str, dirname: str, ref: CheckpointRef) -> None:
        self._stores.drop(host, dirname, ref)

    def release(self) -> None:
        if not self._connected:
            return
        self._leases.close()
        self._nodes.release()
        if self._ours:
            connection.load().shutdown()
        self._connected = self._ours = False
        self._be_new()

    # --- within -----------------------------------------------------------------------------------------

    def _connect(self) -> None:
        if not self._connected:
            connection.check_environment(self._runtime_env, self._options)
            self._ours = connection.connect(self._address, self._options)
            self._connected = True

    def _on_lease(self, lease: Lease, answer: Any) -> None:
        """From any thread."""
        self._reactor.call_soon(lambda events: self._granted(lease, answer))

    def _granted(self, lease: Lease, answer: Any) -> None:
        if self._leases.on_granted(lease, answer):
            self._nodes.use(lease)

    def _lost(self, host: Host, events: list[Event]) -> None:
        self._carrier.lost(host)
        self._attempts.lost(host, events)

    def _upload(self, path: Path, job: AnyJob, then: Callable[[Done | JobFailed], None]) -> bool:
        def answered(answer: Done | JobFailed) -> None:
            then(answer)
            self.wake()

        return self._stores.upload(path, job, answered)

    def _flush(self) -> None:
        for host in self._hosts.values():
            host.flush()

    def _say_who_waits(self) -> None:
        """Nothing runs, and Ray has no room: people should know why nothing happens."""
        if self._attempts or not (wanted := self._leases.wanted()):
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = time.monotonic()
        elif time.monotonic() - self._waits_since > _WAIT_S:
            self._waits_since = math.inf  # once
            self._say(f"nothing runs: no node has had room for a trial that asks for {wanted}, for {_WAIT_S:.0f} s")

    def _say_how(self) -> None:
        count = f"{len(self._hosts)} node{'s' if len(self._hosts) != 1 else ''}"
        others = [host for host in self._hosts.values() if not host.shared]
        if not others:
            self._say(f"{count}; every one sees {self._stores.root}, so checkpoints are not copied between nodes")
        elif self._upload_to is not None:
            self._say(
                f"{count}; each copies its checkpoints to {shown(str(self._upload_to.arguments['place']))} itself"
            )
        else:
            self._way = Future()
            start_thread(self._find_way, name="tuner-way", args=(count, others[0], self._way))
            self._say_way(wait=self._carrier.chosen)

    def _find_way(self, count: str, host: Host, found: Future[str]) -> None:
        """Beside the start, which an ssh that takes a while would hold up."""
        try:
            way = self._carrier.way(host, self._stores.root)
            found.set_result(f"{count}; checkpoints of {host.name} are copied here {way}")
        except Exception as error:  # whatever the library of a place raises: it is raised where the result is awaited
            found.set_exception(error)
        self.wake()

    def _say_way(self, *, wait: bool = False) -> None:
        """Say how checkpoints come here, once that is known, or wait for it. Raises what is wrong with a chosen way."""
        if self._way is not None and (wait or self._way.done()):
            way, self._way = self._way, None
            self._say(way.result())
