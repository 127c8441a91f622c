"""Places for tests: servers of clouds and back ends on them, a directory, an agent."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from tests.servers.azure import Azurite, azurite
from tests.servers.gcs import Gcs, gcs
from tests.servers.s3 import ENVIRONMENT, make_bucket, s3_server
from tests.servers.s3_checksums import ChecksumProxy
from tests.trainables.transfer.harness import Scene
from trainables.store import publish, staging
from trainables.store.manifest import Published
from trainables.transfer.azure import AzureBackend
from trainables.transfer.gcs import GcsBackend
from trainables.transfer.s3 import S3Backend
from trainables.wire import CheckpointRef

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def azure_server() -> Iterator[Azurite]:
    with azurite() as server:
        yield server


@pytest.fixture(scope="module")
def gcs_server() -> Iterator[Gcs]:
    with gcs() as server:
        yield server


@pytest.fixture
def azure(azure_server: Azurite, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AzureBackend]:
    def make(container: str | None = None, **more: object) -> AzureBackend:
        text = azure_server.connection_string(**more)  # type: ignore[arg-type]
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
        return AzureBackend(f"az://{container or azure_server.container()}/exp")

    return make


@pytest.fixture
def google(gcs_server: Gcs, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., GcsBackend]]:
    def make(bucket: str | None = None, url: str | None = None) -> GcsBackend:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url or gcs_server.url)
        return GcsBackend(f"gs://{bucket or gcs_server.bucket()}/exp")

    yield make
    gcs_server.proxy.flip = False


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def nobody() -> int:
    """A port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def moto() -> Iterator[int]:
    with s3_server(MOTO_S3_DEFAULT_MAX_KEYS="7", S3_UPLOAD_PART_MIN_SIZE="1") as port:
        yield port


@pytest.fixture
def s3_proxy(moto: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChecksumProxy]:
    with ChecksumProxy(moto) as s3_proxy:
        assert isinstance(s3_proxy, ChecksumProxy)
        for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": s3_proxy.url}.items():
            monkeypatch.setenv(name, value)
        yield s3_proxy


@pytest.fixture
def s3_backend(s3_proxy: ChecksumProxy) -> Iterator[S3Backend]:
    made = S3Backend(f"s3://{make_bucket(s3_proxy.behind, f'bucket-{next(_NUMBERS)}')}/a/b")
    yield made
    made.close()


@pytest.fixture
def s3_files(tmp_path: Path) -> Path:
    """small: one request; middle: one request of a shared buffer; large: three parts."""
    for name, size in (("small", 3), ("middle", 3_000_000), ("large", 20_000_000)):
        (tmp_path / name).write_bytes(os.urandom(size))
    return tmp_path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where things are copied to: there, and empty."""
    path = tmp_path / "the place"
    path.mkdir()
    return path


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.uploader.close()


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Published]:
    """save(index, {"a.bin": b"..."}) publishes a checkpoint of those files."""

    def make(index: int, files: Mapping[str, bytes] | None = None, directories: tuple[str, ...] = ()) -> Published:
        name = publish.checkpoint_name(index, 1, 1)
        staged = staging.new_directory(tmp_path / "trial", str(index))
        for file, data in (files or {"model.bin": bytes([index % 256]) * 10_000}).items():
            (staged / file).parent.mkdir(parents=True, exist_ok=True)
            (staged / file).write_bytes(data)
        for directory in directories:
            (staged / directory).mkdir(parents=True)
        ref = CheckpointRef("abc_00000", name, 1, 1, index, index)
        prepared = publish.prepare(staged, ref=ref, metrics=msgspec.Raw(b'{"loss":0.5}'), created=1e9)
        return publish.commit(prepared, tmp_path / "trial" / name)

    return make
