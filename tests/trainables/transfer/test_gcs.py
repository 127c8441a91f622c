"""Objects of Google's, kept by an emulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.gcs import Gcs
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
from trainables.transfer.gcs import GcsBackend

requests = pytest.importorskip("requests")
api = pytest.importorskip("google.api_core.exceptions")
auth = pytest.importorskip("google.auth.exceptions")


@checks
def test_gcs_conforms(check: Check, gcs_server: Gcs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_server.url)
    run(check, GcsBackend(f"gs://{gcs_server.bucket()}/a path/below"))


def test_no_credentials_of_google_name_their_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "not there.json"))
    with pytest.raises(AccessRefusedError, match="gcloud auth application-default login"):
        GcsBackend("gs://bucket/path").check()


@pytest.mark.parametrize(
    ("error", "kind", "transient", "said"),
    [
        (auth.TransportError("metadata"), TransferError, True, "could not be had"),
        (auth.RefreshError("revoked"), AccessRefusedError, False, "gcloud auth application-default login"),
        (auth.DefaultCredentialsError("none"), AccessRefusedError, False, "GOOGLE_APPLICATION_CREDENTIALS"),
        (api.RetryError("gave up", None), TransferError, True, "cannot be reached"),
        (requests.ConnectionError("refused"), TransferError, True, "cannot be reached"),
        (requests.ReadTimeout("slow"), TransferError, True, "cannot be reached"),
        (requests.exceptions.ChunkedEncodingError("cut"), TransferError, True, "cut"),
        (api.Unauthorized("no"), AccessRefusedError, False, "read, write and delete there"),
        (api.Forbidden("no"), AccessRefusedError, False, "read, write and delete there"),
        (api.NotFound("The specified bucket does not exist."), StoreMissingError, False, "there is no bucket bucket"),
        (api.NotFound("no such object"), ObjectNotFoundError, False, "there is no gs://bucket/x"),
        (api.BadRequest("Provided CRC32C does not match"), TransferCorruptError, True, "not what was sent"),
        (api.BadRequest("odd"), TransferError, False, "400 odd"),
        (api.PreconditionFailed("there"), ObjectExistsError, False, "is there already"),
        (api.TooManyRequests("slow down"), StoreBusyError, True, "429"),
        (api.ServiceUnavailable("later"), StoreBusyError, True, "503"),
        (api.InternalServerError("oops"), TransferError, True, "500"),
    ],
)
def test_what_googles_library_raises_has_one_meaning(
    error: Exception, kind: type[TransferError], transient: bool, said: str
) -> None:
    found = GcsBackend("gs://bucket/path")._failure(error, "gs://bucket/x")

    assert found is not None
    assert type(found) is kind and found.transient is transient
    assert said in str(found)


def test_what_is_none_of_its_errors_is_left_to_others() -> None:
    assert GcsBackend("gs://bucket/path")._failure(ValueError("x"), "gs://bucket/x") is None
