"""S3 when something is wrong: settings, credentials, networks, servers that are overloaded or silent."""

from __future__ import annotations

import itertools
import os
import random
import re
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.forward import Answer
from tests.servers.proxy import FaultyProxy
from tests.servers.s3 import ENVIRONMENT, make_bucket, s3_server
from tests.servers.s3_checksums import ChecksumProxy, refusal
from trainables.errors import AccessRefusedError, StoreBusyError, StoreMissingError, TransferError
from trainables.transfer.s3 import S3Backend

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def moto() -> Iterator[int]:
    with s3_server() as port:
        yield port


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


@pytest.fixture
def line(moto: int, environment: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    with FaultyProxy(moto) as proxy:
        environment.setenv("AWS_ENDPOINT_URL", proxy.url)
        yield proxy


@pytest.fixture
def backend(moto: int, line: FaultyProxy) -> Iterator[S3Backend]:
    made = S3Backend(f"s3://{make_bucket(moto, f'bucket-{next(_NUMBERS)}')}/a")
    yield made
    made.close()


def files(directory: Path, count: int, size: int = 2000) -> list[str]:
    names = [f"{number:03}" for number in range(count)]
    for name in names:
        (directory / name).write_bytes(os.urandom(size))
    return names


# --- before anything depends on it -------------------------------------------------------------------------


def test_a_bucket_that_is_not_there(line: FaultyProxy) -> None:
    with pytest.raises(StoreMissingError, match="no such bucket: create it.*AWS_ENDPOINT_URL") as raised:
        S3Backend("s3://never-made/a").check()
    assert not raised.value.transient


def test_a_host_that_cannot_be_reached(environment: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and never listens
        environment.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(StoreMissingError, match="cannot be reached.*AWS_ENDPOINT_URL") as raised:
            S3Backend("s3://bucket").check()
    assert raised.value.transient


def test_a_host_without_an_address(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("AWS_ENDPOINT_URL", "http://nowhere.invalid")
    with pytest.raises(StoreMissingError, match="nowhere.invalid"):
        S3Backend("s3://bucket").check()


def test_an_endpoint_that_is_no_url(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("AWS_ENDPOINT_URL", "localhost:9000")
    with pytest.raises(StoreMissingError, match="AWS_ENDPOINT_URL"):
        S3Backend("s3://bucket").check()


def test_a_server_that_never_answers(backend: S3Backend, line: FaultyProxy) -> None:
    line.silent = True
    with pytest.raises(TransferError, match="does not answer|did not answer") as raised:
        backend.check(timeout_s=6.0)
    assert raised.value.transient


def test_a_server_that_takes_connections_and_no_more(environment: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        environment.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{full.getsockname()[1]}")
        with pytest.raises(TransferError) as raised:
            S3Backend("s3://bucket").check(timeout_s=1.0)
    assert raised.value.transient


def test_credentials_that_hang(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever boto3 waits for, the answer comes in time."""
    os.mkfifo(tmp_path / "fifo")
    _process(environment, tmp_path, f"import sys; sys.stdout.write(open({os.fspath(tmp_path / 'fifo')!r}).read())")
    with pytest.raises(TransferError, match="did not answer within 1 s"):
        S3Backend("s3://bucket").check(timeout_s=1.0)
    waiting = [thread for thread in threading.enumerate() if thread.name == "transfer-check"]
    (tmp_path / "fifo").write_text("{}")
    for thread in waiting:
        thread.join()


def test_no_credentials(line: FaultyProxy, environment: pytest.MonkeyPatch) -> None:
    environment.delenv("AWS_ACCESS_KEY_ID")
    environment.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(AccessRefusedError, match="no usable credentials.*AWS_PROFILE.*aws configure"):
        S3Backend("s3://bucket").check()


def test_a_profile_that_is_not_there(line: FaultyProxy, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(AccessRefusedError, match="nobody"):
        S3Backend("s3://bucket").check()


def test_credentials_that_are_refused(environment: pytest.MonkeyPatch) -> None:
    with s3_server(INITIAL_NO_AUTH_ACTION_COUNT="0") as port:
        environment.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        with pytest.raises(AccessRefusedError, match="InvalidAccessKeyId.*AWS_ACCESS_KEY_ID") as raised:
            S3Backend("s3://bucket").check()
    assert not raised.value.transient


def test_settings_of_a_profile(moto: int, environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        environment.delenv(name)
    text = "[profile p]\nregion=us-east-1\nendpoint_url=http://127.0.0.1:%d\naws_access_key_id=a\naws_secret_access_key=b\n"
    (tmp_path / "config").write_text(text % moto)
    environment.setenv("AWS_CONFIG_FILE", os.fspath(tmp_path / "config"))
    environment.setenv("AWS_PROFILE", "p")
    backend = S3Backend(f"s3://{make_bucket(moto, 'of-a-profile')}")
    backend.check()
    backend.put("key", b"x")
    assert backend.read("key") == b"x"
    backend.close()


# --- later -------------------------------------------------------------------------------------------------


def test_f22_five_percent_of_connections_are_reset(backend: S3Backend, line: FaultyProxy, tmp_path: Path) -> None:
    names = files(tmp_path, 80)
    line.reset_share = 0.05
    backend.push(tmp_path, "p", names)
    assert line.resets
    line.reset_share = 0.0
    backend.fetch("p", tmp_path / "back")
    assert {name: (tmp_path / "back" / name).read_bytes() for name in names} == {
        name: (tmp_path / name).read_bytes() for name in names
    }


def test_f22_five_percent_of_requests_get_503(moto: int, environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names, chance, refused = files(tmp_path, 80), random.Random(1), []

    def sometimes(method: str, path: str, headers: dict[str, str]) -> Answer | None:
        if chance.random() >= 0.05:
            return None
        refused.append(path)
        return refusal(503, "SlowDown")

    with ChecksumProxy(moto) as proxy:
        assert isinstance(proxy, ChecksumProxy)
        environment.setenv("AWS_ENDPOINT_URL", proxy.url)
        backend = S3Backend(f"s3://{make_bucket(moto, f'bucket-{next(_NUMBERS)}')}")
        proxy.refuse = sometimes
        backend.push(tmp_path, "p", names)
        backend.fetch("p", tmp_path / "back", names)
        backend.close()
    assert refused
    assert sorted(os.listdir(tmp_path / "back")) == names


def test_f22_an_outage_is_transient_and_passes(backend: S3Backend, line: FaultyProxy, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(os.urandom(20_000_000))
    backend.put("before", b"x")
    line.outage = True
    line.cut()
    for call in (lambda: backend.push(tmp_path, "p", ["large"]), lambda: backend.read("before")):
        with pytest.raises(TransferError) as raised:
            call()
        assert raised.value.transient
    line.outage = False
    backend.push(tmp_path, "p", ["large"])
    backend.fetch("p", tmp_path / "back")
    assert (tmp_path / "back/large").read_bytes() == (tmp_path / "large").read_bytes()


def test_f21_a_server_that_falls_silent_surfaces(backend: S3Backend, line: FaultyProxy, tmp_path: Path) -> None:
    backend.read_timeout_s = 0.5
    names = files(tmp_path, 1)
    backend.push(tmp_path, "p", names)
    line.silent = True
    with pytest.raises(TransferError, match="does not answer") as raised:
        backend.push(tmp_path, "p", names)
    assert raised.value.transient


def test_an_answer_that_is_cut_off_is_continued(backend: S3Backend, line: FaultyProxy, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(os.urandom(20_000_000))
    backend.push(tmp_path, "p", ["large"])
    line.cut_after = line.received + 12_000_000
    told: list[int] = []
    backend.fetch("p", tmp_path / "back", progress=told.append)
    assert line.resets == 1 and sum(told) == 20_000_000
    assert line.received < 26_000_000, "only what was missing is asked for again"
    assert (tmp_path / "back/large").read_bytes() == (tmp_path / "large").read_bytes()


@pytest.mark.parametrize(
    ("status", "code", "kind", "transient"),
    [
        (500, "InternalError", TransferError, True),
        (503, "SlowDown", StoreBusyError, True),
        (403, "AccessDenied", AccessRefusedError, False),
        (403, "SignatureDoesNotMatch", AccessRefusedError, False),
        (403, "RequestTimeTooSkewed", AccessRefusedError, False),
        (400, "ExpiredToken", AccessRefusedError, True),
        (400, "InvalidToken", AccessRefusedError, True),
        (403, "RequestExpired", AccessRefusedError, True),
        (404, "NoSuchBucket", StoreMissingError, False),
        (400, "AuthorizationHeaderMalformed", StoreMissingError, False),
        (400, "EntityTooLarge", TransferError, False),
    ],
)
def test_what_the_server_says_is_classified(
    moto: int, environment: pytest.MonkeyPatch, status: int, code: str, kind: type[TransferError], transient: bool
) -> None:
    environment.setenv("AWS_MAX_ATTEMPTS", "1")
    with ChecksumProxy(moto) as proxy:
        assert isinstance(proxy, ChecksumProxy)
        proxy.refuse = lambda method, path, headers: refusal(status, code)
        environment.setenv("AWS_ENDPOINT_URL", proxy.url)
        backend = S3Backend("s3://bucket")
        with pytest.raises(TransferError, match="s3://bucket/key") as raised:
            backend.put("key", b"x")
        assert type(raised.value) is kind and raised.value.transient is transient
        backend.close()


def test_f22_expired_credentials_are_read_anew(moto: int, environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process that gives credentials; the server takes each key for a few requests only."""
    (tmp_path / "key").write_text("KEY1")
    said = '{"Version": 1, "AccessKeyId": sys.argv[1], "SecretAccessKey": "s", "SessionToken": "t"}'
    script = (
        f"import json, sys; sys.argv[1:] = [open({os.fspath(tmp_path / 'key')!r}).read()]; print(json.dumps({said}))"
    )
    _process(environment, tmp_path, script)
    seen: dict[str, int] = {}

    def expire(method: str, path: str, headers: dict[str, str]) -> Answer | None:
        found = re.search("Credential=([A-Z0-9]+)/", headers["authorization"])
        assert found
        seen[found[1]] = seen.get(found[1], 0) + 1
        return refusal(400, "ExpiredToken") if seen[found[1]] > 3 else None

    with ChecksumProxy(moto) as proxy:
        assert isinstance(proxy, ChecksumProxy)
        environment.setenv("AWS_ENDPOINT_URL", proxy.url)
        backend = S3Backend(f"s3://{make_bucket(moto, f'bucket-{next(_NUMBERS)}')}")
        proxy.refuse = expire
        for number in range(3):
            backend.put(f"{number}", b"x")
        with pytest.raises(AccessRefusedError, match="ExpiredToken") as raised:
            backend.put("3", b"x")
        assert raised.value.transient
        (tmp_path / "key").write_text("KEY2")
        backend.renew()
        backend.put("3", b"x")
        assert backend.read("3") == b"x"
        backend.close()
    assert seen["KEY1"] == 4 and seen["KEY2"] >= 2


def _process(environment: pytest.MonkeyPatch, directory: Path, script: str) -> None:
    """Let boto3 ask a process for credentials."""
    (directory / "credentials.py").write_text(script)
    text = f"[default]\ncredential_process = {sys.executable} {directory / 'credentials.py'}\n"
    (directory / "config").write_text(text)
    environment.setenv("AWS_CONFIG_FILE", os.fspath(directory / "config"))
    environment.delenv("AWS_ACCESS_KEY_ID")
    environment.delenv("AWS_SECRET_ACCESS_KEY")
