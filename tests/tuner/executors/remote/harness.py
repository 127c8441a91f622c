"""Hosts without an engine: the operations of their agents are called as they are, on directories of this machine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from trainables.errors import (
    TransferError,
)
from trainables.job import Job
from trainables.store import delete, publish, staging
from trainables.store.manifest import Published
from trainables.transfer.job_worker import JobWorker
from trainables.transfer.local import LocalBackend
from trainables.transfer.transfer_jobs import FetchCheckpoint, decode_job
from trainables.wire import CheckpointRef
from tuner.executors.base import Resources
from tuner.executors.host_agent.engine_files import Files
from tuner.executors.host_agent.host_survey import check
from tuner.executors.host_agent.protocol import HostSurvey
from tuner.executors.remote.handle import AgentHandle
from tuner.executors.remote.host import HostStore, RemoteHost
from tuner.executors.remote.stores import Stores
from tuner.executors.remote.transfers import Carrier

REF = CheckpointRef("e_0", "checkpoint_000001", 1, 1, 1, 1)


KEY = f"t/{REF.name}"


class Disk:
    """The disk of another host: what its agent does there. All hosts call the experiment's directory `root`."""

    def __init__(self, root: Path, there: Path, replica: Path) -> None:
        self._root, self.there, self._files = root, there, Files(there)
        self._worker = JobWorker(LocalBackend(replica))
        self.asked: Callable[[str], None] = lambda what: None
        """Called with each operation, before it is done."""

    def _place(self, path: Path) -> Path:
        return self.there / path.relative_to(self._root)

    def files(self, what: str, *arguments: Any) -> Any:
        return getattr(self._files, what)(*arguments)

    def check(self, path: Path, digest: str) -> str | None:
        return check(self._place(path), digest)

    def delete(self, path: Path) -> bool:
        return delete.delete(self._place(path))

    def upload(self, data: bytes) -> bytes:
        job = decode_job(data)
        if isinstance(job, FetchCheckpoint):
            job = msgspec.structs.replace(job, target=str(self._place(Path(job.target))))
        return msgspec.json.encode(self._worker.do(job, lambda moved: None))


class NearStore(HostStore):
    """A disk without an agent between it and the driver: what is asked for is done when the answer is waited for."""

    def __init__(self, node: str, disk: Disk) -> None:
        unused: Any = SimpleNamespace(call=lambda *request: request)
        super().__init__(unused, lambda: node, lambda: False)
        self._disk = disk

    def _answer(self, answer: Any, timeout_s: float | None = None) -> Any:
        what, *arguments = answer
        self._disk.asked(arguments[0] if what == "files" else what)
        return getattr(self._disk, what)(*arguments)


class Near(RemoteHost):
    """A host that has no agent."""

    def __init__(self, node: str, disk: Disk) -> None:
        self.node, self.ip, self.lost, self.disk = node, "127.0.0.1.invalid", False, disk
        self._survey, self.store = None, NearStore(node, disk)

    @property
    def shared(self) -> bool:
        return False


class Scene:
    """The driver's directory and those of hosts."""

    def __init__(self, tmp_path: Path) -> None:
        self.root, self.replica = tmp_path / "here" / "e", tmp_path / "replica"
        (self.root / "t").mkdir(parents=True)
        self.carrier = Carrier(lambda: {})
        self.hosts: dict[str, RemoteHost] = {}
        for node in ("a", "b", "c"):
            self.hosts[node] = Near(node, Disk(self.root, tmp_path / node, self.replica))
        self.stores = Stores(self.hosts, self.carrier)
        self.stores.root = self.root

    def disk(self, node: str) -> Disk:
        host = self.hosts[node]
        assert isinstance(host, Near)
        return host.disk

    def saved(self, node: str) -> Published:
        """A checkpoint on that host."""
        there = self.disk(node).there / "t"
        there.mkdir(parents=True)
        staged = staging.new_directory(there, "1")
        (staged / "model").write_bytes(b"x" * 10_000)
        prepared = publish.prepare(staged, ref=REF, metrics=msgspec.Raw(b"{}"), created=1e9)
        self.hosts[node].store.has(self.root / KEY)
        return publish.commit(prepared, there / REF.name)

    def supply(self, *nodes: str, digest: str) -> None:
        """Have the checkpoint on these hosts, all at once."""
        with ThreadPoolExecutor(len(nodes)) as pool:
            ways = [pool.submit(self.stores.supply, self.hosts[node], self.root / KEY, digest) for node in nodes]
        for way in ways:
            way.result()

    def check(self, node: str, published: Published) -> None:
        disk = self.disk(node)
        assert check(disk.there / KEY, published.digest) is None
        assert [path.name for path in (disk.there / "t").iterdir()] == [REF.name]


def meeting(what: str) -> Callable[[str], None]:
    """Holds the first two that ask for that, until both have, or one waits for the other elsewhere."""
    barrier = threading.Barrier(2)

    def asked(name: str) -> None:
        if name == what:
            with suppress(threading.BrokenBarrierError):
                barrier.wait(2.0)

    return asked


def silent(what: str) -> None:
    raise TransferError("b: Get timed out", transient=True)


class NoRoom:
    """Leases of which none is free."""

    def __init__(self) -> None:
        self.asked = 0

    def has_room(self, resources: Resources, promised: Any) -> bool:
        self.asked += 1
        return False


def job_of(scene: Scene, **more: Any) -> Job:
    return Job(
        trial_id="e_0",
        trial_name="t",
        experiment_name="e",
        index=0,
        directory=scene.root / "t",
        temporary=scene.root,
        config={},
        attempt=1,
        generation=1,
        seed=1,
        **more,
    )


class OneSlot:
    """Leases of which one is free, on host a."""

    def has_room(self, resources: Resources, promised: Any) -> bool:
        return True

    def take(self, resources: Resources) -> Any:
        return SimpleNamespace(nodes=("a",), gpus={})

    def put_back(self, lease: Any) -> None:
        pass


class PlayedAgent(AgentHandle):
    """An agent that answers what the test says: a value, an exception, or a future that it sets later."""

    def __init__(self, node: str = "a", **answers: Any) -> None:
        self.answers: dict[str, Any] = {"look": HostSurvey(node, False), "begin": ("127.0.0.1", 1, b"key"), "end": None}
        self.answers.update(answers)
        self.calls: list[str] = []
        self.killed = False

    def call(self, what: str, *arguments: Any) -> Future[Any]:
        self.calls.append(what)
        answer = self.answers.get(what, Future())
        if isinstance(answer, Future):
            return answer
        done: Future[Any] = Future()
        if isinstance(answer, BaseException):
            done.set_exception(answer)
        else:
            done.set_result(answer)
        return done

    def kill(self) -> None:
        self.killed = True
