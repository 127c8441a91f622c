"""Objects of Google's, kept by an emulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.gcs import Gcs
from tests.trainables.transfer.harness import checks, run
from trainables.errors import (
    AccessRefusedError,
)
from trainables.testing.backends import Check
from trainables.transfer.gcs import GcsBackend


@checks
def test_gcs_conforms(check: Check, gcs_server: Gcs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_server.url)
    run(check, GcsBackend(f"gs://{gcs_server.bucket()}/a path/below"))


def test_no_credentials_of_google_name_their_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "not there.json"))
    with pytest.raises(AccessRefusedError, match="gcloud auth application-default login"):
        GcsBackend("gs://bucket/path").check()
