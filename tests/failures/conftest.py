"""Places for replicas: a bucket on a real server, and what can stand between a run and that server."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from replicas import Store, Watched

from tests.servers.proxy import FaultyProxy
from tests.servers.s3 import ENVIRONMENT, make_bucket, s3_server
from trainables.transfer.s3 import S3Backend

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def moto() -> Iterator[int]:
    with s3_server() as port:
        yield port


@pytest.fixture
def store(moto: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An empty bucket; a run finds it through its environment, unless `line` or `watched` stand before it."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{moto}")
    backend = S3Backend(f"s3://{make_bucket(moto, f'replica-{next(_NUMBERS)}')}/runs")
    assert not list(backend.list())  # with this its connection is made, whatever the environment says later
    yield Store(backend)
    backend.close()


@pytest.fixture
def direct(moto: int) -> str:
    """The server itself."""
    return f"http://127.0.0.1:{moto}"


@pytest.fixture
def line(moto: int, store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    """A network before the server."""
    with FaultyProxy(moto) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        yield proxy


@pytest.fixture
def watched(moto: int, store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """A proxy that sees every request before the server."""
    with Watched(moto) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        yield proxy
