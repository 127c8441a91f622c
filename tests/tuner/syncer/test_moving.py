"""Another name in a replica: on every kind of place, and cut off after every single step."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.servers.azure import azurite
from tests.servers.gcs import gcs
from tests.servers.hosts import network
from tests.servers.s3 import ENVIRONMENT, make_bucket, s3_server
from trainables.transfer.azure import AzureBackend
from trainables.transfer.backend import Backend, Can
from trainables.transfer.client import InlineClient
from trainables.transfer.gcs import GcsBackend
from trainables.transfer.job_worker import JobWorker
from trainables.transfer.local import LocalBackend
from trainables.transfer.open import open_backend
from trainables.transfer.rsync import RsyncBackend
from trainables.transfer.transfer_jobs import AnyJob, Done, JobFailed, ListKeys, Read
from tuner.clock import SystemClock
from tuner.experiment.generations import GenerationRecord
from tuner.experiment.processes import Processes
from tuner.syncer.moving import MARKER, MoveIntent, RemoteMove, can_move, intent_at
from tuner.syncer.remote_experiment import RemoteExperiment

OLD = {
    "experiment.json": json.dumps({"id": "abc", "format": 4}).encode(),
    "generations/000001.json": b"first",
    "generations/000001.beat": b"released 3\n",
    "journal/000001-000001.jsonl": b"facts",
    "journal/history/000001-00000001-00000009.jsonl.gz": b"packed",
    "blobs/1234": b"blob",
    "t_0/trial.json": b"{}",
    "t_0/checkpoint_000001/model": b"weights" * 1000,
    "t_0/checkpoint_000001/.manifest.json": b"manifest",
}
STEPS = 40
_NUMBERS = itertools.count()
RECORD = GenerationRecord(2, "me", Processes().me(), 1e9)
LEFT = {"generations/000002.json", "generations/000002.beat"}


class CutOffError(Exception):
    pass


class Client(InlineClient):
    """On one back end; after `left` jobs that change something nothing is done any more."""

    def __init__(self, backend: Backend) -> None:
        self._worker, self._wake = JobWorker(backend), lambda: None
        self.can, self.uri, self.left = backend.can, backend.uri, STEPS
        self._numbers = itertools.count(1)

    def do(self, job: AnyJob, *, timeout_s: float) -> Done | JobFailed:
        if not isinstance(job, (Read, ListKeys)):
            if not self.left:
                raise CutOffError
            self.left -= 1
        return super().do(job, timeout_s=timeout_s)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[pytest.MonkeyPatch], Backend]]:
    with s3_server() as port:

        def make(patch: pytest.MonkeyPatch) -> Backend:
            for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}.items():
                patch.setenv(name, value)
            return open_backend(f"s3://{make_bucket(port, f'moved-{next(_NUMBERS)}')}/runs")

        yield make


@pytest.fixture(scope="module")
def azure() -> Iterator[Callable[[pytest.MonkeyPatch], Backend]]:
    with azurite() as server:

        def make(patch: pytest.MonkeyPatch) -> Backend:
            patch.setenv("AZURE_STORAGE_CONNECTION_STRING", server.connection_string())
            return AzureBackend(f"az://{server.container()}/runs")

        yield make


@pytest.fixture(scope="module")
def google() -> Iterator[Callable[[pytest.MonkeyPatch], Backend]]:
    with gcs() as server:

        def make(patch: pytest.MonkeyPatch) -> Backend:
            patch.setenv("STORAGE_EMULATOR_HOST", server.url)
            return GcsBackend(f"gs://{server.bucket()}/runs")

        yield make


@pytest.fixture(params=["directory", "s3", "azure", "google"])
def backend(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    made = (
        LocalBackend(tmp_path / "place")
        if request.param == "directory"
        else request.getfixturevalue(request.param)(monkeypatch)
    )
    yield made
    made.close()


def lay(backend: Backend, tmp_path: Path, name: str) -> None:
    for key, data in OLD.items():
        path = tmp_path / "old" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    backend.push(tmp_path / "old", name, list(OLD))
    backend.put(f"{name}/generations/000002.json", msgspec.json.encode(RECORD))  # it was claimed


def content(backend: Backend, name: str) -> dict[str, bytes]:
    skip = len(name) + 1
    return {entry.key[skip:]: backend.read(entry.key) for entry in backend.list(name)}


def move(client: Client, name: str) -> RemoteMove:
    remote = RemoteExperiment(client, client.uri, name, timeout_s=30)
    return RemoteMove(remote, MoveIntent(f"{name}.1", "abc"), RECORD, clock=SystemClock(), timeout_s=30)


def check_moved(backend: Backend, name: str) -> None:
    there = content(backend, f"{name}.1")
    assert there.pop("generations/000002.beat", b"released").startswith(b"released")
    there.pop("generations/000002.json")
    assert there == OLD
    left = content(backend, name)
    assert set(left) == LEFT and left["generations/000002.beat"].startswith(b"released")


def test_all_of_it_has_the_other_name_and_who_was_thought_dead_finds_his_successor(
    backend: Backend, tmp_path: Path
) -> None:
    lay(backend, tmp_path, "e")
    moving = move(Client(backend), "e")
    moving.carry_out()
    assert moving.is_done()
    moving.clean_up()
    check_moved(backend, "e")


@pytest.mark.root
def test_another_host_renames(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with network(tmp_path_factory.mktemp("net")) as net, net.enter():
        test_all_of_it_has_the_other_name_and_who_was_thought_dead_finds_his_successor(
            RsyncBackend(net.host().uri("/srv/runs"), ssh_config=net.ssh_config), tmp_path
        )


@pytest.mark.parametrize("backend", ["s3"], indirect=True)
def test_cut_off_after_any_step_it_is_ended_or_taken_back_and_never_nowhere(backend: Backend, tmp_path: Path) -> None:
    for steps in range(STEPS):
        name = f"e{steps}"
        lay(backend, tmp_path, name)
        client = Client(backend)
        client.left = steps
        try:
            moving = move(client, name)
            moving.carry_out()
            moving.clean_up()
            assert steps > 3, "it was cut off so often"
            return
        except CutOffError:
            pass
        whole = [at for at in (name, f"{name}.1") if content(backend, at).items() >= OLD.items()]
        assert whole, "at any time one of the two is all there"
        client.left = STEPS
        again = move(client, name)
        remote = RemoteExperiment(client, client.uri, name, timeout_s=30)
        if again.is_done():
            again.clean_up()
            check_moved(backend, name)
        else:
            intent = intent_at(remote)
            assert steps == 0 or intent == MoveIntent(f"{name}.1", "abc")
            again.take_back()
            assert not content(backend, f"{name}.1")
            left = content(backend, name)
            assert MARKER not in left and {key: left[key] for key in OLD} == OLD
    pytest.fail(f"it takes more than {STEPS} steps")


def test_what_took_the_name_meanwhile_is_left_alone(backend: Backend, tmp_path: Path) -> None:
    lay(backend, tmp_path, "e")
    client = Client(backend)
    client.left = 1
    with pytest.raises(CutOffError):
        move(client, "e").carry_out()  # a marker, and nothing else
    backend.put("e.1/experiment.json", b'{"id": "another"}')
    client.left = STEPS
    assert not move(client, "e").is_done()
    move(client, "e").take_back()
    assert content(backend, "e.1") == {"experiment.json": b'{"id": "another"}'}
    assert MARKER not in content(backend, "e")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"to": "x"}'])
def test_a_marker_that_was_torn_says_nothing(data: bytes) -> None:
    assert MoveIntent.decode(data) is None
    assert MoveIntent.decode(MoveIntent("x.1", "id").encode()) == MoveIntent("x.1", "id")


@pytest.mark.parametrize(
    ("can", "moves"),
    [({}, True), ({"copy": False}, False), ({"copy": False, "rename": True}, True), ({"list": False}, False)],
)
def test_what_can_neither_rename_nor_copy_moves_nothing(can: dict[str, Any], moves: bool) -> None:
    assert can_move(Can(**can)) is moves
