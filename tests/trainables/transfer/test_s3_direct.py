"""PUTs that go round boto3: like boto3's own, and boto3's again when anything is the matter."""

from __future__ import annotations

import datetime
import ipaddress
import os
import socket
import ssl
from pathlib import Path

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.servers.forward import Answer
from tests.servers.s3_checksums import ChecksumProxy, refusal
from trainables.errors import AccessRefusedError, ObjectExistsError, StoreBusyError, TransferError
from trainables.transfer.s3 import S3Backend

Headers = dict[str, str]


@pytest.fixture
def seen(s3_proxy: ChecksumProxy) -> list[tuple[str, Headers]]:
    """(path, headers) of each PUT that comes."""
    found: list[tuple[str, Headers]] = []

    def look(method: str, path: str, headers: Headers) -> Answer | None:
        if method == "PUT":
            found.append((path, headers))
        return None

    s3_proxy.refuse = look
    return found


def by_boto(headers: Headers) -> bool:
    """Whether boto3 has sent it: it numbers its tries."""
    return "amz-sdk-request" in headers


def test_what_follows_the_first_put_goes_round_boto3_with_the_same_headers(
    s3_backend: S3Backend, s3_files: Path, seen: list[tuple[str, Headers]]
) -> None:
    receipts: dict[str, str] = {}
    s3_backend.put("first (1)", b"abc")
    s3_backend.put("again ~ü", b"abc")
    s3_backend.push(s3_files, "p", ["small", "middle", "large"], receipts=receipts)
    assert [by_boto(headers) for _, headers in seen] == [True] + [False] * 6
    of_boto, ours = seen[0][1], seen[1][1]
    unlike = {"amz-sdk-invocation-id", "amz-sdk-request", "accept-encoding", "authorization", "x-amz-date"}
    assert {key: value for key, value in of_boto.items() if key not in unlike} == {
        key: value for key, value in ours.items() if key not in unlike
    }
    s3_backend.fetch("p", s3_files / "back")
    for name in receipts:
        assert (s3_files / "back" / name).read_bytes() == (s3_files / name).read_bytes()


@pytest.mark.parametrize("token", [None, "the token"])
def test_what_is_sent_is_signed(
    s3_backend: S3Backend,
    s3_files: Path,
    seen: list[tuple[str, Headers]],
    token: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if token:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    s3_backend.put("first", b"abc")
    s3_backend.put("o/thers (2)", b"abc", exclusive=True)
    s3_backend.push(s3_files, "p", ["large"])
    for path, headers in seen[1:]:
        check_signature(path, headers, token)


def check_signature(path: str, headers: Headers, token: str | None = None) -> None:
    _, _, names = headers["authorization"].partition("SignedHeaders=")
    signed = names.partition(",")[0].split(";")
    # all that is of S3 and of conditions is among it
    assert {name for name in headers if name.startswith(("x-amz-", "if-", "host"))} == set(signed) - {"cache-control"}
    request = AWSRequest("PUT", f"http://{headers['host']}{path}", headers={n: headers[n] for n in signed})
    request.context["timestamp"] = headers["x-amz-date"]
    auth = S3SigV4Auth(Credentials("testing", "testing", token), "s3", "us-east-1")
    canonical = auth.canonical_request(request)
    signature = auth.signature(auth.string_to_sign(request, canonical), request)
    assert headers["authorization"].endswith(f"Signature={signature}")
    assert headers.get("x-amz-security-token") == token


def test_extra_arguments_go_with_every_upload_and_are_signed(
    s3_backend: S3Backend, s3_proxy: ChecksumProxy, s3_files: Path
) -> None:
    extra = {
        "ServerSideEncryption": "aws:kms",
        "SSEKMSKeyId": "alias/mine",
        "BucketKeyEnabled": True,
        "StorageClass": "STANDARD_IA",
        "Tagging": "team=a&kind=b",
        "CacheControl": "no-cache, private",
        "Metadata": {"Owner": "a b"},
    }
    begun: list[tuple[str, str, Headers]] = []

    def look(method: str, path: str, headers: Headers) -> Answer | None:
        if (method == "PUT" and "partNumber" not in path) or (method == "POST" and path.endswith("uploads")):
            begun.append((method, path, headers))
        return None

    s3_proxy.refuse = look
    backend = S3Backend(s3_backend.uri, extra)
    backend.check()
    backend.put("first", b"abc")
    backend.put("o/thers (2)", b"abc", exclusive=True)
    backend.push(s3_files, "p", ["small", "large"])
    backend.push(s3_files, "q", ["small"], same={"small": "p/small"})
    backend.close()

    assert [(method, "x-amz-copy-source" in headers, by_boto(headers)) for method, _, headers in begun] == [
        ("PUT", False, True), ("PUT", False, True), ("PUT", False, False), ("PUT", False, False), ("POST", False, True),
        ("PUT", True, True),
    ]  # fmt: skip
    for method, path, headers in begun:
        assert headers["x-amz-server-side-encryption"] == "aws:kms"
        assert headers["x-amz-server-side-encryption-aws-kms-key-id"] == "alias/mine"
        assert headers["x-amz-server-side-encryption-bucket-key-enabled"] == "true"
        assert headers["x-amz-storage-class"] == "STANDARD_IA" and headers["x-amz-tagging"] == "team=a&kind=b"
        assert headers["cache-control"] == "no-cache, private" and headers["x-amz-meta-owner"] == "a b"
        if method == "PUT" and not by_boto(headers):
            check_signature(path, headers)
    copied = begun[-1][2]
    assert copied["x-amz-metadata-directive"] == copied["x-amz-tagging-directive"] == "REPLACE"


@pytest.mark.parametrize("name", ["small", "large"])
def test_a_creation_whose_answer_was_lost_is_not_taken_for_anothers(
    s3_backend: S3Backend, s3_proxy: ChecksumProxy, s3_files: Path, name: str
) -> None:
    s3_backend.put("first", b"abc")
    s3_proxy.lose_answers = 1
    s3_backend.push(s3_files, "p", [name], exclusive=True)
    assert s3_proxy.lose_answers == 0
    with pytest.raises(ObjectExistsError):
        s3_backend.push(s3_files, "p", [name], exclusive=True)
    s3_backend.fetch("p", s3_files / "back")
    assert (s3_files / "back" / name).read_bytes() == (s3_files / name).read_bytes()


def test_a_refusal_is_the_first_of_botos_tries(s3_backend: S3Backend, s3_proxy: ChecksumProxy, s3_files: Path) -> None:
    tries: list[bool] = []
    s3_backend.put("first", b"abc")

    def twice(method: str, path: str, headers: Headers) -> Answer | None:
        tries.append(by_boto(headers))
        return refusal(503, "SlowDown") if len(tries) <= 2 else None

    s3_proxy.refuse = twice
    told: list[int] = []
    s3_backend.push(s3_files, "p", ["middle"], progress=told.append)
    assert tries == [False, True, True]
    assert sum(told) == 3_000_000, "what is sent again has moved once"
    s3_backend.put("later", b"abc")
    assert tries[3:] == [False], "boto3's last try shows how to send"


def test_as_many_tries_as_boto3_is_allowed(
    s3_backend: S3Backend, s3_proxy: ChecksumProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3_backend.put("first", b"abc")
    tries: list[bool] = []

    def busy(method: str, path: str, headers: Headers) -> Answer | None:
        tries.append(by_boto(headers))
        return refusal(503, "SlowDown")

    s3_proxy.refuse = busy
    with pytest.raises(StoreBusyError):
        s3_backend.put("second", b"abc")
    assert tries == [False]


@pytest.mark.parametrize(
    "settings",
    [{"AWS_REQUEST_CHECKSUM_CALCULATION": "when_required"}, {"http_proxy": "the server itself"}],
    ids=["no checksums", "a proxy"],
)
def test_what_is_unusual_is_left_to_boto3(
    s3_backend: S3Backend,
    s3_proxy: ChecksumProxy,
    seen: list[tuple[str, Headers]],
    settings: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, s3_proxy.url if name == "http_proxy" else value)
    for number in range(3):
        try:
            s3_backend.put(f"{number}", b"abc")
        except TransferError:  # the server is no proxy
            assert "http_proxy" in settings
    assert seen and all(by_boto(headers) for _, headers in seen)


def test_kept_connections_that_the_server_has_closed_are_not_used(s3_backend: S3Backend) -> None:
    s3_backend.put("first", b"abc")
    s3_backend.put("second", b"abc")
    route = s3_backend._client._route
    (kept,) = route.idle
    kept._socket.shutdown(socket.SHUT_RDWR)
    s3_backend.put("third", b"abc")
    assert s3_backend._client._route is route and route.idle[0] is not kept


# --- TLS ----------------------------------------------------------------------------------------------------


@pytest.fixture
def tls(s3_proxy: ChecksumProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The server speaks TLS only; the file of its certificate, which nobody trusts unless told so."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_certificate(tmp_path / "server.pem"))
    s3_proxy.socket = context.wrap_socket(s3_proxy.socket, server_side=True)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_proxy.url.replace("http:", "https:"))
    monkeypatch.setenv("AWS_CA_BUNDLE", os.fspath(tmp_path / "server.pem"))
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    return tmp_path


def test_over_tls(
    s3_backend: S3Backend, s3_files: Path, tls: Path, seen: list[tuple[str, Headers]], monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_backend.put("first", b"abc")
    s3_backend.push(s3_files, "p", ["small", "middle", "large"])
    assert [by_boto(headers) for _, headers in seen] == [True] + [False] * 5
    assert {headers["x-amz-content-sha256"] for _, headers in seen} == {"UNSIGNED-PAYLOAD"}
    s3_backend.fetch("p", s3_files / "back")
    assert (s3_files / "back/large").read_bytes() == (s3_files / "large").read_bytes()


@pytest.mark.parametrize("name", ["another", "another host"])
def test_a_server_with_another_certificate_is_not_trusted(
    s3_backend: S3Backend, tls: Path, s3_proxy: ChecksumProxy, name: str
) -> None:
    s3_backend.put("first", b"abc")
    s3_backend._client._route.close()  # connections
    address = "127.0.0.1" if name == "another" else "127.0.0.2"
    s3_proxy.socket.context.load_cert_chain(_certificate(tls / "other.pem", address))
    if name == "another host":  # one that is known
        s3_backend._client._route.tls.load_verify_locations(tls / "other.pem")
    before = s3_proxy.body_bytes
    with pytest.raises(AccessRefusedError, match="AWS_CA_BUNDLE names the certificates to trust"):
        s3_backend.put("second", b"abc")
    assert s3_proxy.body_bytes == before


def _certificate(path: Path, address: str = "127.0.0.1") -> Path:
    """Make a key and a certificate that it signs itself, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "of a test")])
    today = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(text + made.public_bytes(serialization.Encoding.PEM))
    return path
