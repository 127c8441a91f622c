"""Azure and Google: what their refusals mean, that damage on the way is noticed, and that an owner is never doubted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers.azure import Azurite
from tests.servers.forward import Answer, Forwarder
from tests.servers.gcs import Gcs
from tests.servers.proxy import FaultyProxy
from tests.trainables.transfer.harness import run
from trainables.errors import (
    ObjectExistsError,
    StoreMissingError,
    TransferCorruptError,
    TransferError,
)
from trainables.transfer.azure import AzureBackend
from trainables.transfer.backend import Backend
from trainables.transfer.gcs import GcsBackend


def test_a_missing_container_or_bucket_is_named(
    azure: Callable[..., AzureBackend], google: Callable[..., GcsBackend]
) -> None:
    with pytest.raises(StoreMissingError, match="no container nowhere: make it"):
        azure("nowhere").check()
    with pytest.raises(StoreMissingError, match="no bucket nowhere: make it"):
        google("nowhere").check()


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


def test_a_whole_bucket_conforms_too(azure_server: Azurite, gcs_server: Gcs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azure_server.connection_string())
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_server.url)
    from trainables.testing.backends import it_says_what_it_holds

    run(it_says_what_it_holds, AzureBackend(f"az://{azure_server.container()}"))
    run(it_says_what_it_holds, GcsBackend(f"gs://{gcs_server.bucket()}/"))
