"""S3, by the conformance suite: against moto behind the proxy that verifies checksums."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.servers.s3 import ENVIRONMENT, make_bucket, s3_server
from tests.servers.s3_checksums import ChecksumProxy
from trainables.testing.backends import CHECKS, Check
from trainables.transfer.s3 import S3Backend

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def proxy() -> Iterator[ChecksumProxy]:
    with s3_server() as port, ChecksumProxy(port) as proxy:
        assert isinstance(proxy, ChecksumProxy)
        yield proxy


@pytest.fixture(params=["", "/a prefix/+ü"], ids=["bucket", "prefix"])
def place(request: pytest.FixtureRequest, proxy: ChecksumProxy, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": proxy.url}.items():
        monkeypatch.setenv(name, value)
    return f"s3://{make_bucket(proxy.behind, f'bucket-{next(_NUMBERS)}')}{request.param}"


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_s3_conforms(check: Check, place: str) -> None:
    backend = S3Backend(place)
    try:
        check(backend)
    finally:
        backend.close()
