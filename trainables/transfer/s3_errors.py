"""Mapping of boto3's errors to ours: kind, whether a retry may help, and the remedy."""

from __future__ import annotations

import ssl
from typing import Any

from botocore import exceptions as boto

from trainables import errors

CUT = (boto.ConnectionError, boto.HTTPClientError, boto.IncompleteReadError)
"""An answer that was cut off; what is missing can be asked for again."""

_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "InvalidToken", "RequestExpired", "TokenRefreshRequired"}
"""Credentials made anew may be taken."""
_REFUSED = {"AccessDenied", "AllAccessDisabled", "InvalidAccessKeyId", "NotSignedUp", "SignatureDoesNotMatch"}
_CORRUPT = {"BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"}
_ABSENT = {"404", "NoSuchKey", "NotFound"}
_ELSEWHERE = {"301", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect"}
_AGAIN = {
    "NoSuchUpload",  # ended by a lifecycle rule, or by a try whose answer was lost: a new upload may succeed
    "OperationAborted",
    "RequestTimeout",
}
_BUSY = {
    "RequestLimitExceeded",
    "ServiceUnavailable",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
}
_NO_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.ProfileNotFound,
    boto.NoAuthTokenError,
    boto.TokenRetrievalError,
    boto.SSOError,
)
_SETTING = (boto.ParamValidationError, boto.InvalidRegionError, boto.NoRegionError, boto.UnknownEndpointError)

_WHERE = (
    "AWS_ENDPOINT_URL and AWS_REGION, or ?endpoint_override=...&region=... at the end of the address, name the server"
)
_UPLOADS = ("PutObject", "CreateMultipartUpload", "CopyObject")
_EXTRA_ARGS = 'SyncConfig(s3_extra_args={"ServerSideEncryption": "aws:kms"})'
_CREDENTIALS = (
    "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN for temporary ones), "
    "or run `aws configure`"
)


def code_of(error: boto.ClientError) -> tuple[str, int]:
    """S3's name of an error, and the HTTP status it came with."""
    response: dict[str, Any] = error.response
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return str(response.get("Error", {}).get("Code", "")), int(status)


def meaning(error: Exception, url: str) -> errors.TransferError | None:
    """Ours for one of boto3's; None when it is not one of those."""
    if isinstance(error, boto.ClientError):
        return _answered(error, url)
    if isinstance(error, boto.FlexibleChecksumError):
        return errors.TransferCorruptError(f"{url}: {error}", transient=True)
    if isinstance(error, boto.CredentialRetrievalError):
        return errors.AccessRefusedError(f"{url}: {error}; {_CREDENTIALS}", transient=True)
    if isinstance(error, _NO_CREDENTIALS):
        return errors.AccessRefusedError(f"{url}: there are no usable credentials: {error}; {_CREDENTIALS}")
    if isinstance(error, _SETTING):
        return errors.StoreMissingError(f"{url}: {error}; {_WHERE}")
    if isinstance(error, boto.SSLError) and _has_within(error, ssl.SSLCertVerificationError):
        return errors.AccessRefusedError(f"{url}: {error}; AWS_CA_BUNDLE names the certificates to trust")
    if isinstance(error, boto.EndpointConnectionError | boto.ConnectTimeoutError):
        return errors.StoreMissingError(f"{url}: the server cannot be reached: {error}; {_WHERE}", transient=True)
    if isinstance(error, boto.ReadTimeoutError):
        return errors.TransferError(f"{url}: the server does not answer: {error}", transient=True)
    if isinstance(error, (*CUT, ssl.SSLError, ConnectionError, TimeoutError)):
        return errors.TransferError(f"{url}: the connection broke: {error}", transient=True)
    if isinstance(error, boto.BotoCoreError | UnicodeEncodeError):
        return errors.TransferError(f"{url!r}: {error}")
    return None


def _has_within(error: BaseException, kind: type[BaseException]) -> bool:
    """Whether an error, or one that it wraps, is of that class."""
    found: list[BaseException] = [error]
    for each in found:
        inner = (each.__cause__, each.__context__, getattr(each, "reason", None), *each.args)
        inner = (*inner, *getattr(each, "kwargs", {}).values())
        found += [other for other in inner if isinstance(other, BaseException) and other not in found]
    return any(isinstance(each, kind) for each in found)


def invalid_endpoint(error: ValueError, url: str) -> errors.StoreMissingError:
    """The meaning of what boto3 raises when a client cannot be made for an endpoint."""
    return errors.StoreMissingError(f"{url}: {error}; {_WHERE}")


def _answered(error: boto.ClientError, url: str) -> errors.TransferError:
    """The meaning of what the server said."""
    code, status = code_of(error)
    text = f"{url}: {error}"
    if code == "NoSuchBucket":
        return errors.StoreMissingError(f"{url}: there is no such bucket: create it, or correct its name; {_WHERE}")
    if code in _ABSENT:
        return errors.ObjectNotFoundError(f"there is no {url}")
    if code in _EXPIRED:
        return errors.AccessRefusedError(f"{text}; new credentials are needed", transient=True)
    if code == "400":  # the answer to a HEAD has no body that would say why
        return errors.AccessRefusedError(
            f"{text}; most often this means that new credentials are needed", transient=True
        )
    if code == "RequestTimeTooSkewed":
        return errors.AccessRefusedError(f"{text}; set this machine's clock")
    if code in _CORRUPT:
        return errors.TransferCorruptError(text, transient=True)
    if status in (429, 502, 503, 504) or code in _BUSY:
        return errors.StoreBusyError(f"{text}; the server is overloaded", transient=True)
    if status >= 500 or status == 408 or code in _AGAIN:
        return errors.TransferError(text, transient=True)
    if code in _ELSEWHERE:
        return errors.StoreMissingError(f"{text}; the bucket is in another region: {_WHERE}")
    if code in _REFUSED or status in (401, 403):
        remedy = "may this user read, write, list and delete there?" if code == "AccessDenied" else _CREDENTIALS
        if code == "AccessDenied" and error.operation_name in _UPLOADS:
            remedy += f" Where the bucket's policy demands encryption or a tag, {_EXTRA_ARGS} sends it"
        return errors.AccessRefusedError(f"{text}; {remedy}")
    if status in (409, 412):
        return errors.TransferError(f"{text}; it was changed meanwhile", transient=True)
    return errors.TransferError(text)
