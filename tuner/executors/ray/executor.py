"""RayExecutor: the driver's end of a run on a cluster."""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cloudpickle

from trainables.store import fs
from trainables.wire import Answer, Report, ToTrial
from tuner.error import SettingError
from tuner.executors.base import Dispatch, Event, Executor, Launch, Message, Resources
from tuner.executors.host_agent import user_modules
from tuner.executors.host_agent.protocol import OWNER_FILE, Setup
from tuner.executors.local.pickled import write_trainable
from tuner.executors.pool import together
from tuner.executors.ray import connection, placement
from tuner.executors.ray.actor import ActorHandle
from tuner.executors.ray.leases import Leases
from tuner.executors.ray.nodes import RayNodes
from tuner.executors.ray.placement import Lease
from tuner.executors.remote import groups
from tuner.executors.remote.host import RemoteHost
from tuner.executors.remote.hosts import Found
from tuner.executors.remote.remote_run import RemoteRun
from tuner.executors.remote_hosts import ExperimentPlace

_ADDRESS = re.compile(r"auto|[^\s/]+:\d+")
_WAIT_S = 60.0


class RayCluster(RemoteRun):
    """The parts of one run.

    Args:
        runtime_env: Ray's, for the agents and their trials.
        connect: connects to Ray, where that is not done.
        wait: lets the executor do what there is to do.
        released: called when it is over.
    """

    def __init__(
        self,
        runtime_env: Mapping[str, Any] | None,
        *,
        connect: Callable[[], None],
        wait: Callable[[float | None], None],
        released: Callable[[], None],
    ) -> None:
        self.leases = Leases(self._on_lease, time.monotonic)
        super().__init__(self.leases, lambda node: ActorHandle(node, runtime_env), connection.is_alive, wait)
        self._connect, self._released = connect, released
        self._nodes = RayNodes(
            self.hosts,
            self.reactor,
            self.leases,
            self,
            leaves=self.attempts.halt_on,
            keeps=lambda dirname, ref: self.keeps(dirname, ref),
        )
        self._waits_since: float | None = None

    def check_fits(self, resources: Resources, trainable: Any) -> None:
        self._connect()
        groups.check_fits(resources, [node.resources for node in connection.nodes()], trainable)

    def survey(self, place: ExperimentPlace) -> list[Found]:
        self._connect()
        self.leases.owner = place.id
        placement.end_older(place.older)
        return self._nodes.survey(place)

    def begin(self, trainable: Any, marker: str, temporary: Path) -> None:
        """Have the agents get ready for trials of it."""
        ray = connection.load()
        with contextlib.suppress(FileExistsError):  # an older owner's agent may have taken it along, empty
            fs.mkdir(temporary, 0o700)
        (temporary / OWNER_FILE).write_text(marker)
        written = write_trainable(trainable, temporary)
        try:
            pickled, modules = ray.put(written.path.read_bytes()), ray.put(user_modules.collect())
        finally:
            written.path.unlink(missing_ok=True)
        uploading = b"" if self.upload_to is None else cloudpickle.dumps(self.upload_to)
        self.leases.meant = groups.meant_by(trainable)
        self._nodes.begin(Setup(written.imports, marker, temporary, Path.cwd(), uploading=uploading), pickled, modules)

    def lost(self, host: RemoteHost, events: list[Event]) -> None:
        self.leases.lost(host.node)
        super().lost(host, events)

    def end_trials(self) -> None:
        super().end_trials()
        self.leases.close()

    def release(self) -> None:
        self.leases.close()
        self.hosts.release()
        self._released()

    def say_who_waits(self) -> None:
        """Nothing runs, and Ray has no room: people should know why nothing happens."""
        if self.attempts or not (wanted := self.leases.wanted()):
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = time.monotonic()
        elif time.monotonic() - self._waits_since > _WAIT_S:
            self._waits_since = math.inf  # once
            self.say(f"nothing runs: no node has had room for a trial that asks for {wanted}, for {_WAIT_S:.0f} s")

    def _on_lease(self, lease: Lease, answer: Any) -> None:
        """From any thread."""
        self.reactor.call_soon(lambda events: self._granted(lease, answer))

    def _granted(self, lease: Lease, answer: Any) -> None:
        if self.leases.on_granted(lease, answer):
            self._nodes.use(lease)


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
        self._unanswered = 0
        """Results of a batch that their trials have no answer to yet."""
        self._cluster = self._new_cluster()

    def __repr__(self) -> str:
        return f"RayExecutor(address={self._address!r})"

    @property
    def remote_hosts(self) -> RayCluster:
        return self._cluster

    def total(self) -> Resources:
        self._connect()
        return together({}, [node.resources for node in connection.nodes()])

    def start(self, trainable: Any, *, lock_fds: Sequence[int] = (), marker: str = "", temporary: Path) -> None:
        self._connect()
        self._cluster.begin(trainable, marker, Path(temporary))

    def can_launch(self, resources: Resources, promised: Sequence[Resources] = ()) -> bool:
        return not self._cluster.attempts.queued and self._cluster.leases.has_room(resources, promised)

    def awaits_room(self) -> bool:
        return bool(self._cluster.leases.wanted())

    def launch(self, launch: Launch) -> None:
        self._cluster.attempts.launch(launch)

    def tell(self, trial_id: str, message: ToTrial) -> None:
        self._cluster.attempts.tell(trial_id, message)
        if type(message) is Answer:
            self._unanswered -= 1
            if not self._unanswered:
                self._cluster.hosts.flush()  # they go on while the last result is written down

    def kill(self, trial_id: str) -> None:
        self._cluster.attempts.kill(trial_id)

    def run_once(self, dispatch: Dispatch, timeout: float | None) -> None:
        cluster = self._cluster
        cluster.hosts.flush()
        events: list[Event] = []
        if (idle := cluster.leases.idle_until()) is not None:
            left = idle - time.monotonic()
            timeout = left if timeout is None else min(left, timeout)
        cluster.reactor.wait(timeout, events)
        cluster.leases.tidy()
        cluster.attempts.launch_queued()
        cluster.say_who_waits()
        cluster.say_way()
        if events:
            self._unanswered = sum(type(event) is Message and type(event.body) is Report for event in events)
            dispatch(events)
        cluster.hosts.flush()

    def wake(self) -> None:
        self._cluster.reactor.wake()

    def shutdown(self, *, grace_s: float = 0.0) -> None:
        if not self._connected:
            return
        deadline = time.monotonic() + grace_s
        while self._cluster.attempts and (left := deadline - time.monotonic()) > 0:
            self.run_once(lambda events: None, left)
        self._cluster.end_trials()

    def _connect(self) -> None:
        if not self._connected:
            connection.check_environment(self._runtime_env, self._options)
            self._ours = connection.connect(self._address, self._options)
            self._connected = True

    def _new_cluster(self) -> RayCluster:
        """Nothing is known of any run: it may be used for another one."""
        return RayCluster(
            self._runtime_env,
            connect=self._connect,
            wait=lambda timeout: self.run_once(lambda events: None, timeout),
            released=self._released,
        )

    def _released(self) -> None:
        if self._ours:
            connection.load().shutdown()
        self._connected = self._ours = False
        self._cluster = self._new_cluster()
