"""What is sent to S3: checksums, conditions, copies there."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from tests.servers.forward import Answer
from tests.servers.s3_checksums import ChecksumProxy, refusal
from trainables.errors import (
    InvalidAddressError,
    ObjectExistsError,
    TransferCorruptError,
    TransferError,
)
from trainables.transfer import s3_sending
from trainables.transfer.s3 import S3Backend

MB = 1_000_000


def test_receipts_are_what_the_store_computed_of_the_whole(s3_backend: S3Backend, s3_files: Path) -> None:
    receipts: dict[str, str] = {}
    s3_backend.push(s3_files, "p", ["small", "middle", "large"], receipts=receipts)
    crcs = {name: zlib.crc32((s3_files / name).read_bytes()) for name in ("small", "middle", "large")}
    assert receipts == {name: f"crc32:{crc:08x}" for name, crc in crcs.items()}


@pytest.mark.parametrize("name", ["middle", "large"])
def test_what_changes_on_its_way_is_refused(
    s3_backend: S3Backend, s3_proxy: ChecksumProxy, s3_files: Path, name: str
) -> None:
    s3_proxy.flip = True
    with pytest.raises(TransferCorruptError) as raised:
        s3_backend.push(s3_files, "p", [name])
    assert raised.value.transient
    assert not s3_backend.exists(f"p/{name}")


@pytest.mark.parametrize("name", ["small", "middle"])
def test_a_store_that_holds_something_else_is_noticed(
    s3_backend: S3Backend, s3_proxy: ChecksumProxy, s3_files: Path, name: str
) -> None:
    def other(method: str, path: str, headers: dict[str, str]) -> Answer | None:
        return (200, {"ETag": '"0"', "x-amz-checksum-crc32": "AAAAAA=="}, b"") if method == "PUT" else None

    s3_proxy.refuse = other
    with pytest.raises(TransferCorruptError, match="CRC-32 00000000 there"):
        s3_backend.push(s3_files, "p", [name])


def test_a_store_without_checksums_is_asked_for_sizes(
    s3_backend: S3Backend, s3_proxy: ChecksumProxy, s3_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{s3_proxy.behind}")  # moto alone, which computes none
    receipts: dict[str, str] = {}
    s3_backend.push(s3_files, "p", ["small", "large"], receipts=receipts)
    assert receipts == {"small": "", "large": ""}
    s3_backend.fetch("p", s3_files / "back")
    assert (s3_files / "back/large").read_bytes() == (s3_files / "large").read_bytes()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_over_tls_the_content_is_hashed_once_only(
    s3_files: Path, scheme: str, s3_proxy: ChecksumProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signature covers the content where nothing else does."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"{scheme}://127.0.0.1:{s3_proxy.server_port}")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3_backend, headers = S3Backend("s3://bucket"), []
    s3_backend._client.meta.events.register("before-send.s3", lambda request, **_: headers.append(request.headers))
    with pytest.raises(TransferError):  # no such bucket; no TLS there
        s3_backend.push(s3_files, "", ["middle"])
    s3_backend.close()
    assert "x-amz-checksum-crc32" in headers[0] and "x-amz-trailer" not in headers[0]
    assert (headers[0]["X-Amz-Content-SHA256"] == b"UNSIGNED-PAYLOAD") is (scheme == "https")


def test_each_file_is_told_once_and_in_small_steps(s3_backend: S3Backend, s3_files: Path) -> None:
    told: list[int] = []
    s3_backend.push(s3_files, "p", ["small", "middle", "large"], progress=told.append)
    assert sum(told) == 3 + 23 * MB and max(told) <= MB
    told.clear()
    s3_backend.fetch("p", s3_files / "back", progress=told.append)
    assert sum(told) == 3 + 23 * MB and max(told) <= MB


@pytest.mark.parametrize("name", ["small", "large"])
def test_a_creation_whose_answer_was_lost_is_not_taken_for_anothers(
    s3_backend: S3Backend, s3_proxy: ChecksumProxy, s3_files: Path, name: str
) -> None:
    s3_proxy.lose_answers = 1
    s3_backend.push(s3_files, "p", [name], exclusive=True)
    assert s3_proxy.lose_answers == 0
    s3_backend.fetch("p", s3_files / "back")
    assert (s3_files / "back" / name).read_bytes() == (s3_files / name).read_bytes()


def test_a_creation_that_lost_stays_lost_after_a_retry(s3_backend: S3Backend, s3_proxy: ChecksumProxy) -> None:
    s3_backend.put("claim", b"theirs")
    answers = iter([refusal(503, "SlowDown")])
    s3_proxy.refuse = lambda method, path, headers: next(answers, None)
    with pytest.raises(ObjectExistsError):
        s3_backend.put("claim", b"ours!!", exclusive=True)
    assert s3_backend.read("claim") == b"theirs"


def test_of_two_that_are_told_of_each_other_none_is_told_that_it_exists(
    s3_backend: S3Backend, s3_proxy: ChecksumProxy
) -> None:
    conflict = refusal(409, "ConditionalRequestConflict")
    s3_proxy.refuse = lambda method, path, headers: conflict if method == "PUT" else None
    with pytest.raises(TransferError) as raised:
        s3_backend.put("claim", b"ours", exclusive=True)
    assert raised.value.transient and not isinstance(raised.value, ObjectExistsError)


def test_a_large_file_that_exists_is_not_sent_first(
    s3_backend: S3Backend, s3_proxy: ChecksumProxy, s3_files: Path
) -> None:
    s3_backend.put("p/large", b"there")
    before = s3_proxy.body_bytes
    with pytest.raises(ObjectExistsError):
        s3_backend.push(s3_files, "p", ["large"], exclusive=True)
    assert s3_proxy.body_bytes == before


@pytest.mark.parametrize("limit", [s3_sending.COPY_LIMIT, 5 * MB], ids=["at once", "in parts"])
def test_known_content_is_copied_over_there(
    s3_backend: S3Backend, s3_proxy: ChecksumProxy, s3_files: Path, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_sending, "COPY_LIMIT", limit)
    monkeypatch.setattr(s3_sending, "COPY_PART", 6 * MB)
    first: dict[str, str] = {}
    second: dict[str, str] = {}
    s3_backend.push(s3_files, "old", ["large"], receipts=first)
    before = s3_proxy.body_bytes
    s3_backend.push(s3_files, "new dir;$(x)", ["large"], same={"large": "old/large"}, receipts=second)
    assert s3_proxy.body_bytes - before < 10_000
    assert first == second
    s3_backend.fetch("new dir;$(x)", s3_files / "back")
    assert (s3_files / "back/large").read_bytes() == (s3_files / "large").read_bytes()


@pytest.mark.parametrize("uri", ["s3://", "s3:///prefix", "bucket/prefix", "s3://?endpoint_override=x", "s3://a b/c"])
def test_a_uri_without_a_bucket_is_refused(uri: str) -> None:
    with pytest.raises(InvalidAddressError, match="s3://bucket/prefix is accepted"):
        S3Backend(uri)


def test_a_uri_that_leads_out_is_refused() -> None:
    with pytest.raises(TransferError):
        S3Backend("s3://bucket/a/../../b")
    assert S3Backend("s3://bucket/a/b//").uri == "s3://bucket/a/b"
