"""S3 beyond the conformance suite: checksums, conditions, copies, listings, what is fetched."""

from __future__ import annotations

import itertools
import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.forward import Answer
from tests.servers.s3 import ENVIRONMENT, make_bucket, s3_server
from tests.servers.s3_checksums import ChecksumProxy, refusal
from trainables.errors import (
    MissingExtraError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreMissingError,
    TransferCorruptError,
    TransferError,
)
from trainables.transfer import s3_sending
from trainables.transfer.s3 import S3Backend

MB = 1_000_000
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def moto() -> Iterator[int]:
    with s3_server(MOTO_S3_DEFAULT_MAX_KEYS="7", S3_UPLOAD_PART_MIN_SIZE="1") as port:
        yield port


@pytest.fixture
def proxy(moto: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChecksumProxy]:
    with ChecksumProxy(moto) as proxy:
        assert isinstance(proxy, ChecksumProxy)
        for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": proxy.url}.items():
            monkeypatch.setenv(name, value)
        yield proxy


@pytest.fixture
def backend(proxy: ChecksumProxy) -> Iterator[S3Backend]:
    made = S3Backend(f"s3://{make_bucket(proxy.behind, f'bucket-{next(_NUMBERS)}')}/a/b")
    yield made
    made.close()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """small: one request; middle: one request of a shared buffer; large: three parts."""
    for name, size in (("small", 3), ("middle", 3 * MB), ("large", 20 * MB)):
        (tmp_path / name).write_bytes(os.urandom(size))
    return tmp_path


# --- checksums ---------------------------------------------------------------------------------------------


def test_receipts_are_what_the_store_computed_of_the_whole(backend: S3Backend, source: Path) -> None:
    receipts: dict[str, str] = {}
    backend.push(source, "p", ["small", "middle", "large"], receipts=receipts)
    crcs = {name: zlib.crc32((source / name).read_bytes()) for name in ("small", "middle", "large")}
    assert receipts == {name: f"crc32:{crc:08x}" for name, crc in crcs.items()}


@pytest.mark.parametrize("name", ["middle", "large"])
def test_what_changes_on_its_way_is_refused(backend: S3Backend, proxy: ChecksumProxy, source: Path, name: str) -> None:
    proxy.flip = True
    with pytest.raises(TransferCorruptError) as raised:
        backend.push(source, "p", [name])
    assert raised.value.transient
    assert not backend.exists(f"p/{name}")


@pytest.mark.parametrize("name", ["small", "middle"])
def test_a_store_that_holds_something_else_is_noticed(
    backend: S3Backend, proxy: ChecksumProxy, source: Path, name: str
) -> None:
    def other(method: str, path: str, headers: dict[str, str]) -> Answer | None:
        return (200, {"ETag": '"0"', "x-amz-checksum-crc32": "AAAAAA=="}, b"") if method == "PUT" else None

    proxy.refuse = other
    with pytest.raises(TransferCorruptError, match="CRC-32 00000000 there"):
        backend.push(source, "p", [name])


def test_a_store_without_checksums_is_asked_for_sizes(
    backend: S3Backend, proxy: ChecksumProxy, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.behind}")  # moto alone, which computes none
    receipts: dict[str, str] = {}
    backend.push(source, "p", ["small", "large"], receipts=receipts)
    assert receipts == {"small": "", "large": ""}
    backend.fetch("p", source / "back")
    assert (source / "back/large").read_bytes() == (source / "large").read_bytes()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_over_tls_the_content_is_hashed_once_only(
    source: Path, scheme: str, proxy: ChecksumProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signature covers the content where nothing else does."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"{scheme}://127.0.0.1:{proxy.server_port}")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    backend, headers = S3Backend("s3://bucket"), []
    backend._client.meta.events.register("before-send.s3", lambda request, **_: headers.append(request.headers))
    with pytest.raises(TransferError):  # no such bucket; no TLS there
        backend.push(source, "", ["middle"])
    backend.close()
    assert "x-amz-checksum-crc32" in headers[0] and "x-amz-trailer" not in headers[0]
    assert (headers[0]["X-Amz-Content-SHA256"] == b"UNSIGNED-PAYLOAD") is (scheme == "https")


def test_each_file_is_told_once_and_in_small_steps(backend: S3Backend, source: Path) -> None:
    told: list[int] = []
    backend.push(source, "p", ["small", "middle", "large"], progress=told.append)
    assert sum(told) == 3 + 23 * MB and max(told) <= MB
    told.clear()
    backend.fetch("p", source / "back", progress=told.append)
    assert sum(told) == 3 + 23 * MB and max(told) <= MB


# --- conditions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["small", "large"])
def test_a_creation_whose_answer_was_lost_is_not_taken_for_anothers(
    backend: S3Backend, proxy: ChecksumProxy, source: Path, name: str
) -> None:
    proxy.lose_answers = 1
    backend.push(source, "p", [name], exclusive=True)
    assert proxy.lose_answers == 0
    backend.fetch("p", source / "back")
    assert (source / "back" / name).read_bytes() == (source / name).read_bytes()


def test_a_creation_that_lost_stays_lost_after_a_retry(backend: S3Backend, proxy: ChecksumProxy) -> None:
    backend.put("claim", b"theirs")
    answers = iter([refusal(503, "SlowDown")])
    proxy.refuse = lambda method, path, headers: next(answers, None)
    with pytest.raises(ObjectExistsError):
        backend.put("claim", b"ours!!", exclusive=True)
    assert backend.read("claim") == b"theirs"


def test_of_two_that_are_told_of_each_other_none_is_told_that_it_exists(
    backend: S3Backend, proxy: ChecksumProxy
) -> None:
    conflict = refusal(409, "ConditionalRequestConflict")
    proxy.refuse = lambda method, path, headers: conflict if method == "PUT" else None
    with pytest.raises(TransferError) as raised:
        backend.put("claim", b"ours", exclusive=True)
    assert raised.value.transient and not isinstance(raised.value, ObjectExistsError)


def test_a_large_file_that_exists_is_not_sent_first(backend: S3Backend, proxy: ChecksumProxy, source: Path) -> None:
    backend.put("p/large", b"there")
    before = proxy.body_bytes
    with pytest.raises(ObjectExistsError):
        backend.push(source, "p", ["large"], exclusive=True)
    assert proxy.body_bytes == before


# --- copies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [s3_sending.COPY_LIMIT, 5 * MB], ids=["at once", "in parts"])
def test_known_content_is_copied_over_there(
    backend: S3Backend, proxy: ChecksumProxy, source: Path, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_sending, "COPY_LIMIT", limit)
    monkeypatch.setattr(s3_sending, "COPY_PART", 6 * MB)
    first: dict[str, str] = {}
    second: dict[str, str] = {}
    backend.push(source, "old", ["large"], receipts=first)
    before = proxy.body_bytes
    backend.push(source, "new dir;$(x)", ["large"], same={"large": "old/large"}, receipts=second)
    assert proxy.body_bytes - before < 10_000
    assert first == second
    backend.fetch("new dir;$(x)", source / "back")
    assert (source / "back/large").read_bytes() == (source / "large").read_bytes()


# --- what is there -----------------------------------------------------------------------------------------


def test_listings_go_on_over_pages(backend: S3Backend, source: Path) -> None:
    names = [f"d{number % 9}/{number:02}" for number in range(30)]
    for name in names:
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_bytes(b"x")
    backend.push(source, "p", names)
    assert sorted(entry.key for entry in backend.list("p")) == sorted(f"p/{name}" for name in names)
    assert backend.children("p") == [f"d{number}/" for number in range(9)]
    backend.delete_tree("p")
    assert list(backend.list()) == []


def test_the_first_key_goes_before_the_others(backend: S3Backend, proxy: ChecksumProxy) -> None:
    backend.delete(["c/.manifest.json", *(f"c/{number}" for number in range(2001))])
    asked = [(method, path.rpartition("/")[2]) for method, path in proxy.requests]
    batches = [(method, path) for method, path in asked if method == "POST"]
    assert asked[0] == ("DELETE", ".manifest.json")
    assert len(batches) == 3 and len(asked) == 4


def test_a_deletion_that_is_refused_is_an_error(backend: S3Backend, proxy: ChecksumProxy) -> None:
    denied = (
        b"<DeleteResult><Error><Key>a/b/2</Key><Code>AccessDenied</Code><Message>no</Message></Error></DeleteResult>"
    )
    proxy.refuse = lambda method, path, headers: (200, {}, denied) if method == "POST" else None
    with pytest.raises(TransferError, match="AccessDenied"):
        backend.delete(["1", "2", "3"])


def test_markers_of_directories_are_no_files(backend: S3Backend, source: Path) -> None:
    backend._client.put_object(Bucket=backend.bucket, Key="a/b/p/")
    backend._client.put_object(Bucket=backend.bucket, Key="a/b/p/d/")
    backend.put("p/file", b"x")
    assert [entry.key for entry in backend.list("p")] == ["p/file"]
    assert backend.children("p") == ["d/", "file"]
    backend.fetch("p", source / "back")
    backend.delete_tree("p")
    assert backend.children() == []


@pytest.mark.parametrize("key", ["p/../../evil", "p//evil", "p/./evil", "p/a/../../../evil"])
def test_a_key_that_would_leave_the_target_is_refused(backend: S3Backend, source: Path, key: str) -> None:
    backend._client.put_object(Bucket=backend.bucket, Key=f"a/b/{key}", Body=b"evil")
    before = sorted(source.rglob("*"))
    with pytest.raises(TransferError, match="is refused"):
        backend.fetch("p", source / "target" / "deeper")
    assert sorted(source.rglob("*")) == before


def test_what_is_replaced_while_it_is_fetched_is_not_mixed(
    backend: S3Backend, proxy: ChecksumProxy, source: Path
) -> None:
    backend.push(source, "p", ["large"])
    asked: list[Any] = []

    def replace(method: str, path: str, headers: dict[str, str]) -> Answer | None:
        if method == "GET" and "range" in headers:
            asked.append(headers.get("if-match"))
            if len(asked) == 2:
                proxy.ask("PUT", path, {"Host": headers["host"], "Authorization": headers["authorization"]}, b"new")
        return None

    proxy.refuse = replace
    with pytest.raises(TransferError) as raised:
        backend.fetch("p", source / "back")
    assert raised.value.transient
    assert list((source / "back").iterdir()) == []


def test_a_fetch_of_nothing_says_so(backend: S3Backend, source: Path) -> None:
    with pytest.raises(ObjectNotFoundError):
        backend.fetch("nothing", source)
    with pytest.raises(ObjectNotFoundError):
        backend.read("nothing")


@pytest.mark.parametrize("uri", ["s3://", "s3:///prefix", "bucket/prefix", "s3://b?endpoint_override=x", "s3://a b/c"])
def test_a_uri_without_a_bucket_is_refused(uri: str) -> None:
    with pytest.raises(StoreMissingError, match="s3://bucket/prefix is accepted"):
        S3Backend(uri)


def test_a_uri_that_leads_out_is_refused() -> None:
    with pytest.raises(TransferError):
        S3Backend("s3://bucket/a/../../b")
    assert S3Backend("s3://bucket/a/b//").uri == "s3://bucket/a/b"


def test_without_boto3_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(MissingExtraError, match=r'pip install "tuner\[s3\]"'):
        S3Backend("s3://bucket")
