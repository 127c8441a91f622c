"""S3 beyond the conformance suite: checksums, conditions, copies, listings, what is fetched."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.servers.forward import Answer
from tests.servers.s3_checksums import ChecksumProxy
from trainables.errors import (
    MissingExtraError,
    ObjectNotFoundError,
    TransferError,
)
from trainables.transfer.s3 import S3Backend


def test_listings_go_on_over_pages(s3_backend: S3Backend, s3_files: Path) -> None:
    names = [f"d{number % 9}/{number:02}" for number in range(30)]
    for name in names:
        (s3_files / name).parent.mkdir(exist_ok=True)
        (s3_files / name).write_bytes(b"x")
    s3_backend.push(s3_files, "p", names)
    assert sorted(entry.key for entry in s3_backend.list("p")) == sorted(f"p/{name}" for name in names)
    assert s3_backend.children("p") == [f"d{number}/" for number in range(9)]
    s3_backend.delete_tree("p")
    assert list(s3_backend.list()) == []


def test_the_first_key_goes_before_the_others(s3_backend: S3Backend, s3_proxy: ChecksumProxy) -> None:
    s3_backend.delete(["c/.manifest.json", *(f"c/{number}" for number in range(2001))])
    asked = [(method, path.rpartition("/")[2]) for method, path in s3_proxy.requests]
    batches = [(method, path) for method, path in asked if method == "POST"]
    assert asked[0] == ("DELETE", ".manifest.json")
    assert len(batches) == 3 and len(asked) == 4


def test_a_deletion_that_is_refused_is_an_error(s3_backend: S3Backend, s3_proxy: ChecksumProxy) -> None:
    denied = (
        b"<DeleteResult><Error><Key>a/b/2</Key><Code>AccessDenied</Code><Message>no</Message></Error></DeleteResult>"
    )
    s3_proxy.refuse = lambda method, path, headers: (200, {}, denied) if method == "POST" else None
    with pytest.raises(TransferError, match="AccessDenied"):
        s3_backend.delete(["1", "2", "3"])


def test_markers_of_directories_are_no_files(s3_backend: S3Backend, s3_files: Path) -> None:
    s3_backend._client.put_object(Bucket=s3_backend.bucket, Key="a/b/p/")
    s3_backend._client.put_object(Bucket=s3_backend.bucket, Key="a/b/p/d/")
    s3_backend.put("p/file", b"x")
    assert [entry.key for entry in s3_backend.list("p")] == ["p/file"]
    assert s3_backend.children("p") == ["d/", "file"]
    s3_backend.fetch("p", s3_files / "back")
    s3_backend.delete_tree("p")
    assert s3_backend.children() == []


@pytest.mark.parametrize("key", ["p/../../evil", "p//evil", "p/./evil", "p/a/../../../evil"])
def test_a_key_that_would_leave_the_target_is_refused(s3_backend: S3Backend, s3_files: Path, key: str) -> None:
    s3_backend._client.put_object(Bucket=s3_backend.bucket, Key=f"a/b/{key}", Body=b"evil")
    before = sorted(s3_files.rglob("*"))
    with pytest.raises(TransferError, match="is refused"):
        s3_backend.fetch("p", s3_files / "target" / "deeper")
    assert sorted(s3_files.rglob("*")) == before


def test_what_is_replaced_while_it_is_fetched_is_not_mixed(
    s3_backend: S3Backend, s3_proxy: ChecksumProxy, s3_files: Path
) -> None:
    s3_backend.push(s3_files, "p", ["large"])
    asked: list[Any] = []

    def replace(method: str, path: str, headers: dict[str, str]) -> Answer | None:
        if method == "GET" and "range" in headers:
            asked.append(headers.get("if-match"))
            if len(asked) == 2:
                s3_proxy.ask("PUT", path, {"Host": headers["host"], "Authorization": headers["authorization"]}, b"new")
        return None

    s3_proxy.refuse = replace
    with pytest.raises(TransferError) as raised:
        s3_backend.fetch("p", s3_files / "back")
    assert raised.value.transient
    assert list((s3_files / "back").iterdir()) == []


def test_a_fetch_of_nothing_says_so(s3_backend: S3Backend, s3_files: Path) -> None:
    with pytest.raises(ObjectNotFoundError):
        s3_backend.fetch("nothing", s3_files)
    with pytest.raises(ObjectNotFoundError):
        s3_backend.read("nothing")


def test_without_boto3_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(MissingExtraError, match=r'pip install .*\[s3\]"'):
        S3Backend("s3://bucket")
