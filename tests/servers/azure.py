"""Azure Blob Storage: azurite, Microsoft's own, from npm (`make setup` installs it beside the Python environment)."""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from azure.storage.blob import BlobServiceClient

from tests.servers.process import serving

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of every azurite, and in its documentation."""


class Azurite:
    """A server; each container that is asked for is another."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._numbers = itertools.count(1)

    def connection_string(self, *, key: str = KEY, port: int | None = None) -> str:
        endpoint = f"http://127.0.0.1:{port or self.port}/{ACCOUNT}"
        return f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={key};BlobEndpoint={endpoint};"

    def service(self) -> BlobServiceClient:
        return BlobServiceClient.from_connection_string(self.connection_string())

    def container(self) -> str:
        """The name of a new, empty container."""
        name = f"container-{next(self._numbers)}"
        with self.service() as service:
            service.create_container(name)
        return name


@contextmanager
def azurite() -> Iterator[Azurite]:
    program = shutil.which("azurite-blob") or Path(sys.prefix) / "node" / "node_modules" / ".bin" / "azurite-blob"
    if not Path(program).exists() or shutil.which("node") is None:
        pytest.skip("azurite is not installed: apt-get install npm, then make setup")
    options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    command = [program, "--blobHost", "127.0.0.1", "--blobPort", "0", *options]
    with serving(command, r"listens on http://127\.0\.0\.1:(\d+)") as found:
        yield Azurite(int(found[1]))
