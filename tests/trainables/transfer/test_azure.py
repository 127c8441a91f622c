"""Blobs of Azure, kept by its emulator."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tests.servers.azure import KEY, Azurite
from tests.trainables.transfer.harness import checks, run
from trainables.errors import (
    AccessRefusedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreBusyError,
    StoreMissingError,
    TransferCorruptError,
    TransferError,
)
from trainables.testing.backends import Check
from trainables.transfer.azure import AzureBackend

exceptions = pytest.importorskip("azure.core.exceptions")


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


def answered(status: int, code: str = "", text: str = "the service says no") -> Exception:
    """What the library makes of an answer."""
    response = SimpleNamespace(status_code=status, reason="", headers={}, text=lambda *_: "")
    error = exceptions.HttpResponseError(message=text, response=response)
    error.error_code = code
    return error


@pytest.mark.parametrize(
    ("status", "code", "kind", "transient"),
    [
        (404, "ContainerNotFound", StoreMissingError, False),
        (409, "ContainerBeingDeleted", StoreMissingError, False),
        (409, "BlobAlreadyExists", ObjectExistsError, False),
        (412, "ConditionNotMet", ObjectExistsError, False),
        (401, "InvalidAuthenticationInfo", AccessRefusedError, False),
        (403, "AuthorizationFailure", AccessRefusedError, False),
        (404, "BlobNotFound", ObjectNotFoundError, False),
        (404, "", ObjectNotFoundError, False),
        (400, "Md5Mismatch", TransferCorruptError, True),
        (503, "ServerBusy", StoreBusyError, True),
        (429, "", StoreBusyError, True),
        (500, "InternalError", TransferError, True),
        (400, "InvalidHeaderValue", TransferError, False),
    ],
)
def test_what_the_service_answers_has_one_meaning(
    status: int, code: str, kind: type[TransferError], transient: bool
) -> None:
    found = AzureBackend("az://container/path")._failure(answered(status, code), "az://container/path/x")

    assert found is not None
    assert type(found) is kind and found.transient is transient
    assert "container" in str(found)


def test_a_server_that_cannot_be_reached_is_asked_again_and_other_errors_are_left_to_others() -> None:
    place = AzureBackend("az://container/path")

    for error in (exceptions.ServiceRequestError("refused"), exceptions.ServiceResponseError("cut")):
        found = place._failure(error, "az://x")
        assert type(found) is TransferError and found.transient and "cannot be reached" in str(found)
    assert place._failure(ValueError("x"), "az://x") is None


@pytest.mark.parametrize(
    ("uri", "said", "host"),
    [
        ("az://c/p", {"ACCOUNT_NAME": "me", "ACCOUNT_KEY": "a2V5"}, "https://me.blob.core.windows.net/c"),
        ("abfs://c@you.dfs.core.windows.net/p", {"ACCOUNT_KEY": "a2V5"}, "https://you.blob.core.windows.net/c"),
        ("az://c/p", {"ACCOUNT_NAME": "me", "SAS_TOKEN": "sig=x"}, "https://me.blob.core.windows.net/c?sig=x"),
    ],
)
def test_the_account_is_the_addresss_own_or_the_environments(
    uri: str, said: dict[str, str], host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    for name, value in said.items():
        monkeypatch.setenv(f"AZURE_STORAGE_{name}", value)
    place = AzureBackend(uri)

    assert place._client.url == host
    place.close()
