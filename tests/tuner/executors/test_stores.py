"""What lies on which host and how it gets elsewhere, without an engine: agents' operations are called as they are."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from trainables.errors import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointNotFoundError,
    PublishError,
    TransferError,
)
from trainables.job import Job
from trainables.net.failed import FailureKind
from trainables.store import delete, publish, staging, verify
from trainables.store.manifest import Published
from trainables.transfer import remote_checkpoints
from trainables.transfer.client import InlineClient
from trainables.transfer.job_worker import JobWorker
from trainables.transfer.local import LocalBackend
from trainables.transfer.remote_checkpoints import ContentIndex
from trainables.transfer.transfer_jobs import AnyJob, Done, FetchCheckpoint, JobFailed, PushPayload, decode_job
from trainables.wire import CheckpointRef
from tuner.executors import RayExecutor
from tuner.executors.base import Launch, Resources
from tuner.executors.host_agent.engine_files import Files
from tuner.executors.host_agent.host_survey import check
from tuner.executors.reactor import Reactor
from tuner.executors.remote.host import HostStore, RemoteHost
from tuner.executors.remote.remote_attempts import RemoteAttempts
from tuner.executors.remote.stores import Stores
from tuner.executors.remote.transfers import Carrier
from tuner.executors.remote.uploads import ClusterUploader
from tuner.experiment.state import ExperimentState
from tuner.opening.other_hosts import gather

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


# --- clones ------------------------------------------------------------------------------------------------


def test_two_clones_on_two_hosts_get_the_checkpoint_that_a_third_has(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    published = scene.saved("a")
    scene.disk("a").asked = meeting("read")
    scene.supply("b", "c", digest=published.digest)
    scene.check("b", published)
    scene.check("c", published)
    assert [path.name for path in (scene.root / "t").iterdir()] == [REF.name]


def test_two_clones_on_one_host_get_the_checkpoint_that_the_replica_has(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.stores.uploads = True
    published = scene.saved("a")
    place, key = LocalBackend(scene.replica), f"e/{KEY}"
    remote_checkpoints.push_payload(place, published.path, key, index=ContentIndex())
    remote_checkpoints.push_manifest(place, published.path, key)
    scene.disk("b").there.joinpath("t").mkdir(parents=True)
    scene.disk("b").asked = meeting("check")
    scene.supply("b", "b", digest=published.digest)
    scene.check("b", published)
    assert not scene.carrier._taken  # nothing stays of each checkpoint that was ever brought anywhere


def test_what_is_here_already_and_is_not_the_one_that_is_meant_is_not_taken_for_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    published = scene.saved("a")
    scene.carrier.bring_here(scene.hosts["a"], scene.root / KEY, scene.root, published.digest)
    with pytest.raises(CheckpointCorruptError):
        scene.carrier.bring_here(scene.hosts["a"], scene.root / KEY, scene.root, "0" * 64)


# --- before the loop ---------------------------------------------------------------------------------------


def silent(what: str) -> None:
    raise TransferError("b: Get timed out", transient=True)


@pytest.mark.parametrize("trouble", ["silent", "gone"])
def test_a_host_that_dies_after_it_was_looked_at_does_not_keep_a_resume_from_going_on(
    tmp_path: Path, trouble: str
) -> None:
    scene = Scene(tmp_path)
    published = {node: scene.saved(node) for node in ("b", "c")}
    remote = RayExecutor().remote_hosts
    remote._hosts, remote._carrier, remote.root = scene.hosts, scene.carrier, scene.root
    remote.experiment = "e"
    remote.found = [(node, "t", REF, published[node].digest) for node in ("b", "c")]
    if trouble == "silent":
        scene.disk("b").asked = silent
    else:
        del scene.hosts["b"]

    notes = gather(remote, ExperimentState(scene.root), lambda trial, ref: False)

    assert published["b"].path.exists() and not published["c"].path.exists()
    assert [REF.name in note and "timed out" in note for note in notes] == [True] * (trouble == "silent")


def test_a_checkpoint_of_a_host_that_is_gone_is_not_brought_here_and_that_is_said(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    published = scene.saved("b")
    del scene.hosts["b"]
    problem = scene.stores.bring("b", "t", REF, published.digest)
    assert problem is not None and "gone" in problem


# --- the end ----------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("problem", "said", "why"),
    [
        (CheckpointCorruptError("a byte is wrong"), None, "unusable"),
        (CheckpointNotFoundError("nobody has it"), None, "unusable"),
        (PublishError(errno.ENOSPC, "no room"), True, "lost"),
        (CheckpointError("it cannot be read just now"), None, "lost"),
        (TransferError("the host does not answer"), None, "lost"),
    ],
)
def test_only_a_checkpoint_that_is_missing_or_damaged_is_unusable(
    tmp_path: Path, problem: Exception, said: bool | None, why: str
) -> None:
    scene, reactor = Scene(tmp_path), Reactor()

    def supply(*_: Any) -> None:
        raise problem

    scene.stores.supply = supply  # type: ignore[method-assign]
    scene.hosts["a"].temporary = lambda path: path  # type: ignore[method-assign]
    attempts = RemoteAttempts(scene.hosts, reactor, OneSlot(), scene.stores, scene.carrier)  # type: ignore[arg-type]
    attempts.launch(Launch(job_of(scene, checkpoint_path=scene.root / KEY), {"cpu": 1.0}))
    events: list[Any] = []
    while not events:
        reactor.wait(5.0, events)
    *before, exited = events
    assert exited.reason == why
    assert [(event.body.type, event.body.disk) for event in before] == (
        [] if said is None else [("PublishError", said)]
    )
    scene.carrier.close()


def test_a_checkpoint_that_a_host_cannot_read_just_now_is_not_set_aside_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)
    scene.saved("a")
    there = scene.disk("a").there / KEY

    def unreadable(path: Path, **settings: Any) -> None:
        raise CheckpointError(f"{path} cannot be read just now: Input/output error")

    monkeypatch.setattr(verify, "check", unreadable)
    with pytest.raises(CheckpointError, match="just now"):
        check(there, "")
    assert there.is_dir()


def test_after_the_run_nothing_that_waited_for_a_slot_asks_for_one(tmp_path: Path) -> None:
    scene, leases = Scene(tmp_path), NoRoom()
    attempts = RemoteAttempts(scene.hosts, Reactor(), leases, scene.stores, scene.carrier)  # type: ignore[arg-type]
    job = job_of(scene)
    attempts.launch(Launch(job, {"cpu": 1.0}))
    assert attempts.queued and leases.asked == 1

    attempts.forget()
    attempts.launch_queued()
    assert not attempts.queued and leases.asked == 1
    attempts.launch(Launch(job, {"cpu": 1.0}))
    assert not attempts.queued and leases.asked == 1


def test_a_host_that_cannot_copy_what_it_has_is_no_sign_of_life_of_the_replica(tmp_path: Path) -> None:
    """Else the end of a run would wait for it as long as it says so."""
    (tmp_path / "place").mkdir()
    answer: list[Done | JobFailed] = [JobFailed(FailureKind.TRANSFER, "no credentials"), Done(0)]

    def send(path: Path, job: AnyJob, then: Callable[[Done | JobFailed], None]) -> bool:
        then(answer.pop(0))
        return True

    home = InlineClient({"place": str(tmp_path / "place")})
    uploader = ClusterUploader(home, send, lambda timeout: None)
    job = PushPayload(directory=str(tmp_path / "e"), key="e/t/c")
    before = uploader.heard_at
    number = uploader.submit(job)
    assert [(type(told), told.id) for told in uploader.answers()] == [(JobFailed, number)]
    assert uploader.heard_at == before
    uploader.submit(job)
    assert [type(told) for told in uploader.answers()] == [Done]
    assert uploader.heard_at > before
