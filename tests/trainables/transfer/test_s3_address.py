"""Addresses of buckets on a server of their own, as Ray and pyarrow write them."""

from __future__ import annotations

import pytest

from trainables.errors import InvalidAddressError
from trainables.places import child_of, parent_and_name, split_query
from trainables.transfer.between import common
from trainables.transfer.s3 import S3Backend
from trainables.transfer.s3_address import S3Address


@pytest.mark.parametrize(
    ("query", "endpoint", "region"),
    [
        ("", None, None),
        ("?endpoint_override=http://127.0.0.1:9000", "http://127.0.0.1:9000", None),
        ("?endpoint_override=http%3A%2F%2F127.0.0.1%3A9000", "http://127.0.0.1:9000", None),
        ("?endpoint_override=http://127.0.0.1:9000/", "http://127.0.0.1:9000", None),
        ("?scheme=http&endpoint_override=127.0.0.1:9000", "http://127.0.0.1:9000", None),
        ("?endpoint_override=minio.lan&region=eu-west-1", "https://minio.lan", "eu-west-1"),
        ("?endpoint_override=[::1]:9000&scheme=https", "https://[::1]:9000", None),
        ("?region=eu-west-1", None, "eu-west-1"),
    ],
)
def test_a_server_and_a_region_are_named_as_for_pyarrow(query: str, endpoint: str | None, region: str | None) -> None:
    found = S3Address.parse(f"s3://bucket/a/b/{query}")
    assert (found.bucket, found.prefix) == ("bucket", "a/b")
    assert (found.endpoint_url, found.region) == (endpoint, region)
    assert found.uri == f"s3://bucket/a/b{query}"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("endpoint=http://h", "the query parameter 'endpoint' is not accepted; accepted: endpoint_override="),
        ("versionId", "the query parameter 'versionId' is not accepted"),
        ("allow_bucket_creation=true", "the query parameter 'allow_bucket_creation' is not accepted"),
        ("region=a&region=b", "the query parameter 'region' is given twice"),
        ("region=eu west", "region='eu west' is not accepted"),
        ("scheme=ftp&endpoint_override=h", "scheme='ftp' is not accepted; accepted: http and https"),
        ("scheme=http", "scheme='http' needs endpoint_override="),
        ("scheme=http&endpoint_override=https://h", "scheme='http' and endpoint_override='https://h' differ"),
        ("endpoint_override=ftp://h", "endpoint_override='ftp://h' is not accepted; accepted: host, host:port"),
        ("endpoint_override=", "endpoint_override='' is not accepted"),
        ("endpoint_override=http://h:9000/mine", r"has a path.*goes before the question mark: s3://bucket/a/mine\?"),
    ],
)
def test_what_is_no_server_is_refused_by_its_parameter(query: str, said: str) -> None:
    with pytest.raises(InvalidAddressError, match=said):
        S3Address.parse(f"s3://bucket/a?{query}")


def test_a_client_is_of_the_server_and_the_region_that_the_address_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AWS_ENDPOINT_URL": "http://elsewhere:1", "AWS_REGION": "us-west-2"}.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    for server, options in (("http://127.0.0.1:9000", {}), ("https://minio.lan", {"connect_timeout": 1})):
        backend = S3Backend(f"s3://bucket/a?endpoint_override={server}&region=eu-central-1")
        client = backend._connected(**options)
        assert (client.meta.endpoint_url, client.meta.region_name) == (server, "eu-central-1")
        client.close()
        backend.close()


def test_what_lies_below_an_address_is_named_before_its_query() -> None:
    query = "?endpoint_override=http://127.0.0.1:9000/"
    backend = S3Backend(f"s3://bucket/a/{query}")
    assert backend.url("t/c@1") == f"s3://bucket/a/t/c@1{query}" == child_of(f"s3://bucket/a{query}", "t/c@1")
    assert parent_and_name(backend.url("t/c")) == (f"s3://bucket/a/t{query}", "c")
    assert parent_and_name(f"s3://bucket{query}") == (f"s3://bucket{query}", "")
    assert split_query(backend.uri) == ("s3://bucket/a", query)
    assert common(backend.uri, f"s3://bucket/b{query}") == f"s3://bucket{query}"
    assert common(backend.uri, "s3://bucket/b") is None  # another server
    backend.close()
