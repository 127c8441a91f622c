"""What an error of boto3's means: which of ours it is, whether trying again may help, and what is to be done."""

from __future__ import annotations

import ssl

import pytest

pytest.importorskip("botocore")

from botocore import exceptions as boto

from trainables.errors import (
    AccessRefusedError,
    ObjectNotFoundError,
    StoreBusyError,
    StoreMissingError,
    TransferCorruptError,
    TransferError,
)
from trainables.transfer.s3_errors import code_of, invalid_endpoint, meaning

URL = "s3://bucket/key"


def answered(code: str, status: int) -> boto.ClientError:
    return boto.ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject")


@pytest.mark.parametrize(
    ("code", "status", "kind", "transient", "said"),
    [
        ("NoSuchBucket", 404, StoreMissingError, False, "create it, or correct its name"),
        ("NoSuchKey", 404, ObjectNotFoundError, False, "there is no s3://bucket/key"),
        ("404", 404, ObjectNotFoundError, False, "there is no"),
        ("ExpiredToken", 400, AccessRefusedError, True, "new credentials are needed"),
        ("400", 400, AccessRefusedError, True, "most often this means"),
        ("RequestTimeTooSkewed", 403, AccessRefusedError, False, "set this machine's clock"),
        ("BadDigest", 400, TransferCorruptError, True, URL),
        ("XAmzContentChecksumMismatch", 400, TransferCorruptError, True, URL),
        ("SlowDown", 503, StoreBusyError, True, "overloaded"),
        ("TooManyRequestsException", 400, StoreBusyError, True, "overloaded"),
        ("Whatever", 429, StoreBusyError, True, "overloaded"),
        ("BadGateway", 502, StoreBusyError, True, "overloaded"),
        ("InternalError", 500, TransferError, True, URL),
        ("RequestTimeout", 400, TransferError, True, URL),
        ("Whatever", 408, TransferError, True, URL),
        ("NoSuchUpload", 404, TransferError, True, URL),
        ("PermanentRedirect", 301, StoreMissingError, False, "in another region"),
        ("AccessDenied", 403, AccessRefusedError, False, "may this user read, write, list and delete there"),
        ("InvalidAccessKeyId", 403, AccessRefusedError, False, "AWS_PROFILE"),
        ("Unheard", 401, AccessRefusedError, False, "AWS_PROFILE"),
        ("PreconditionFailed", 412, TransferError, True, "changed meanwhile"),
        ("EntityTooLarge", 400, TransferError, False, "EntityTooLarge"),
        ("", 0, TransferError, False, URL),
    ],
)
def test_what_a_server_answers_has_one_meaning(
    code: str, status: int, kind: type[TransferError], transient: bool, said: str
) -> None:
    error = answered(code, status)
    found = meaning(error, URL)

    assert type(found) is kind and found.transient is transient
    assert said in str(found)
    assert code_of(error) == (code, status)


def test_an_answer_without_a_body_or_a_status_has_a_meaning_too() -> None:
    error = boto.ClientError({}, "HeadObject")

    assert code_of(error) == ("", 0)
    assert type(meaning(error, URL)) is TransferError


@pytest.mark.parametrize(
    ("error", "kind", "transient", "said"),
    [
        (boto.FlexibleChecksumError(error_msg="differs"), TransferCorruptError, True, "differs"),
        (boto.CredentialRetrievalError(provider="p", error_msg="x"), AccessRefusedError, True, "AWS_PROFILE"),
        (boto.NoCredentialsError(), AccessRefusedError, False, "no usable credentials"),
        (boto.ProfileNotFound(profile="p"), AccessRefusedError, False, r"profile \(p\) could not be found"),
        (boto.PartialCredentialsError(provider="env", cred_var="x"), AccessRefusedError, False, "AWS_ACCESS_KEY_ID"),
        (boto.NoRegionError(), StoreMissingError, False, "AWS_REGION"),
        (boto.ParamValidationError(report="bad"), StoreMissingError, False, "bad"),
        (boto.EndpointConnectionError(endpoint_url="http://x"), StoreMissingError, True, "cannot be reached"),
        (boto.ConnectTimeoutError(endpoint_url="http://x"), StoreMissingError, True, "cannot be reached"),
        (boto.ReadTimeoutError(endpoint_url="http://x"), TransferError, True, "does not answer"),
        (boto.ConnectionClosedError(endpoint_url="http://x"), TransferError, True, "connection broke"),
        (boto.IncompleteReadError(actual_bytes=1, expected_bytes=2), TransferError, True, "connection broke"),
        (ConnectionResetError("reset"), TransferError, True, "connection broke: reset"),
        (TimeoutError("slow"), TransferError, True, "connection broke: slow"),
        (ssl.SSLError("handshake"), TransferError, True, "connection broke"),
        (boto.SSLError(endpoint_url="https://x", error=ssl.SSLError("eof")), TransferError, True, "connection broke"),
        (boto.BotoCoreError(), TransferError, False, "unspecified error"),
    ],
)
def test_what_boto_itself_raises_has_one_meaning(
    error: Exception, kind: type[TransferError], transient: bool, said: str
) -> None:
    with pytest.raises(kind, match=said) as raised:
        raise meaning(error, URL) or AssertionError(error)

    assert type(raised.value) is kind and raised.value.transient is transient
    assert URL in str(raised.value)


def test_a_certificate_is_what_it_is_however_deep_it_is_wrapped() -> None:
    refused = ssl.SSLCertVerificationError("self-signed certificate")
    wrapped = OSError("max retries")
    wrapped.reason = refused  # type: ignore[attr-defined]  # as urllib3 does

    for cause in (refused, wrapped, Exception(wrapped)):
        found = meaning(boto.SSLError(endpoint_url="https://x", error=cause), URL)
        assert type(found) is AccessRefusedError and not found.transient
        assert "AWS_CA_BUNDLE" in str(found)


def test_errors_that_lead_to_each_other_are_looked_at_once() -> None:
    one, other = OSError("one"), OSError("other")
    one.__cause__, other.__cause__ = other, one

    assert type(meaning(boto.SSLError(endpoint_url="https://x", error=one), URL)) is TransferError


def test_a_refused_upload_names_what_a_policy_may_demand() -> None:
    denied = {"Error": {"Code": "AccessDenied"}, "ResponseMetadata": {"HTTPStatusCode": 403}}

    assert "s3_extra_args={" in str(meaning(boto.ClientError(denied, "PutObject"), URL))
    assert "s3_extra_args" not in str(meaning(boto.ClientError(denied, "ListObjectsV2"), URL))


def test_what_is_none_of_botos_is_left_to_others() -> None:
    for error in (ValueError("x"), ZeroDivisionError(), FileNotFoundError("x")):
        assert meaning(error, URL) is None


def test_an_endpoint_that_is_none_names_the_settings() -> None:
    found = invalid_endpoint(ValueError("Invalid endpoint: x"), URL)

    assert "Invalid endpoint: x" in str(found) and "AWS_ENDPOINT_URL" in str(found)


def test_a_name_that_cannot_be_written_is_shown_as_it_can_be() -> None:
    url = "s3://bucket/caf\udce9"
    try:
        url.encode()
    except UnicodeEncodeError as error:
        found = meaning(error, url)

    assert type(found) is TransferError
    str(found).encode()
