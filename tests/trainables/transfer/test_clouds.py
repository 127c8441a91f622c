"""Azure and Google: what their refusals mean, that damage on the way is noticed, and that an owner is never doubted."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers.azure import KEY, Azurite, azurite
from tests.servers.forward import Answer, Forwarder
from tests.servers.gcs import Gcs, gcs
from tests.servers.proxy import FaultyProxy
from trainables.errors import (
    AccessRefusedError,
    ObjectExistsError,
    StoreMissingError,
    TransferCorruptError,
    TransferError,
)
from trainables.transfer.azure import AzureBackend
from trainables.transfer.backend import Backend
from trainables.transfer.gcs import GcsBackend

WRONG_KEY = "A" * len(KEY.rstrip("=")) + "=="


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


def test_a_missing_container_or_bucket_is_named(
    azure: Callable[..., AzureBackend], google: Callable[..., GcsBackend]
) -> None:
    with pytest.raises(StoreMissingError, match="no container nowhere: make it"):
        azure("nowhere").check()
    with pytest.raises(StoreMissingError, match="no bucket nowhere: make it"):
        google("nowhere").check()


def test_refused_credentials_name_their_remedy(
    azure: Callable[..., AzureBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AccessRefusedError, match=r"credentials in AZURE_STORAGE_\*") as caught:
        azure(key=WRONG_KEY).check()
    assert WRONG_KEY not in str(caught.value)
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING")
    with pytest.raises(AccessRefusedError, match="AZURE_STORAGE_ACCOUNT_NAME"):
        AzureBackend("az://container/path").check()


@pytest.mark.parametrize(
    "said",
    ["hunter2", "AccountKey=hunter2", "AccountName=a;AccountKey", ";"],
)
def test_a_connection_string_that_is_none_is_named_and_not_shown(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", said)
    backend = AzureBackend("az://container/path")
    with pytest.raises(AccessRefusedError, match=r"az://container/path.* AZURE_STORAGE_CONNECTION_STRING ") as caught:
        backend.check()
    assert "hunter2" not in str(caught.value)


def test_no_credentials_of_google_name_their_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "not there.json"))
    with pytest.raises(AccessRefusedError, match="gcloud auth application-default login"):
        GcsBackend("gs://bucket/path").check()


def test_who_never_answers_does_not_hold_up_a_start(
    silent: int, azure: Callable[..., AzureBackend], google: Callable[..., GcsBackend]
) -> None:
    backends: list[Backend] = [azure("c", port=silent), google("b", f"http://127.0.0.1:{silent}")]
    for backend in backends:
        with pytest.raises(TransferError, match="did not answer within 0.5 s") as caught:
            backend.check(0.5)
        assert caught.value.transient


def test_who_cannot_be_reached_is_said_so(
    nobody: int, azure: Callable[..., AzureBackend], google: Callable[..., GcsBackend]
) -> None:
    backends: list[Backend] = [azure("c", port=nobody), google("b", f"http://127.0.0.1:{nobody}")]
    for backend in backends:
        with pytest.raises(TransferError, match="cannot be reached") as caught:
            backend.check()
        assert caught.value.transient and "refused" in str(caught.value), "the cause is named"


def test_f22_credentials_are_built_anew(azure: Callable[..., AzureBackend], azure_server: Azurite) -> None:
    container = azure_server.container()
    backend = azure(container, key=WRONG_KEY)
    with pytest.raises(AccessRefusedError):
        backend.put("a", b"a")
    azure(container)  # the environment has the right key now
    with pytest.raises(AccessRefusedError):
        backend.put("a", b"a")
    backend.renew()
    backend.put("a", b"a")
    assert backend.read("a") == b"a"


@pytest.mark.parametrize("size", [200_000, 12_000_000], ids=["in one piece", "in parts"])
def test_damage_on_the_way_is_noticed(
    size: int,
    tmp_path: Path,
    azure_server: Azurite,
    gcs_server: Gcs,
    azure: Callable[..., AzureBackend],
    google: Callable[..., GcsBackend],
) -> None:
    (tmp_path / "a").write_bytes(os.urandom(size))
    with Forwarder(azure_server.port) as proxy:
        backends: list[Backend] = [azure(port=proxy.server_port), google()]
        proxy.flip = gcs_server.proxy.flip = True
        for backend in backends:
            with pytest.raises(TransferCorruptError) as caught:
                backend.push(tmp_path, "x", ["a"])
            assert caught.value.transient, "it may arrive whole the next time"
        proxy.flip = gcs_server.proxy.flip = False
        for backend in backends:
            backend.push(tmp_path, "x", ["a"])
            backend.fetch("x", tmp_path / "fetched")
            assert (tmp_path / "fetched" / "a").read_bytes() == (tmp_path / "a").read_bytes()
            backend.close()


class Forgetful(Forwarder):
    """Loses the answer to the first upload after `lose` was set: it is done, and the client hears of a fault."""

    lose = False

    def handle_one(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        answer = super().handle_one(method, path, headers, body)
        if self.lose and method in ("PUT", "POST"):
            self.lose = False
            return 503, {"Content-Type": "text/plain"}, b""
        return answer


def test_an_exclusive_creation_whose_answer_was_lost_is_ours(
    azure_server: Azurite, gcs_server: Gcs, azure: Callable[..., AzureBackend], google: Callable[..., GcsBackend]
) -> None:
    with Forgetful(azure_server.port) as first, Forgetful(gcs_server.proxy.server_port) as second:
        backends: list[tuple[Backend, Forgetful]] = [
            (azure(port=first.server_port), first),
            (google(url=f"http://127.0.0.1:{second.server_port}"), second),
        ]
        for backend, proxy in backends:
            backend.put("warm", b"up")
            proxy.lose = True
            backend.put("claim", b"mine", exclusive=True)
            assert not proxy.lose, "an answer was lost"
            assert backend.read("claim") == b"mine"
            with pytest.raises(ObjectExistsError):
                backend.put("claim", b"another's", exclusive=True)
            backend.close()


def test_f22_resets_are_passing_and_what_arrived_is_left_out(
    tmp_path: Path,
    azure_server: Azurite,
    gcs_server: Gcs,
    azure: Callable[..., AzureBackend],
    google: Callable[..., GcsBackend],
) -> None:
    names = [f"file {number}" for number in range(30)]
    for name in names:
        (tmp_path / name).write_bytes(os.urandom(100_000))
    with FaultyProxy(azure_server.port) as first, FaultyProxy(gcs_server.proxy.server_port) as second:
        backends: list[tuple[Backend, FaultyProxy]] = [
            (azure(port=first.port), first),
            (google(url=f"http://127.0.0.1:{second.port}"), second),
        ]
        for backend, proxy in backends:
            proxy.reset_share = 0.05
            receipts: dict[str, str] = {}
            while len(receipts) < len(names):
                try:
                    backend.push(tmp_path, "x", [name for name in names if name not in receipts], receipts=receipts)
                except TransferError as error:
                    assert error.transient, "a reset may not come again"
            assert proxy.resets > 0
            proxy.reset_share = 0.0
            assert {entry.key for entry in backend.list()} == {f"x/{name}" for name in names}
            backend.close()
