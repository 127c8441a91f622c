"""Blobs of Azure, kept by its emulator."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.servers.azure import KEY, Azurite
from tests.trainables.transfer.harness import checks, run
from trainables.errors import (
    AccessRefusedError,
)
from trainables.testing.backends import Check
from trainables.transfer.azure import AzureBackend


@checks
def test_azure_conforms(check: Check, azure_server: Azurite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azure_server.connection_string())
    run(check, AzureBackend(f"az://{azure_server.container()}/a path/below"))


WRONG_KEY = "A" * len(KEY.rstrip("=")) + "=="


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
