"""Parsing of S3 addresses: bucket, prefix, and the query that names a server."""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from urllib.parse import parse_qsl

from trainables.errors import InvalidAddressError
from trainables.masking import masked
from trainables.places import split_query, without_password
from trainables.quick_dataclass import dataclass
from trainables.transfer.backend import joined

SCHEMES = ("s3", "s3a", "s3n")
PARAMETERS = ("endpoint_override", "scheme", "region")
"""Names of a query, as pyarrow's `S3FileSystem.from_uri` and Ray have them."""

_ACCEPTED = "endpoint_override=http://host:9000 (or scheme=http&endpoint_override=host:9000) and region=eu-west-1"
_CREDENTIALS = "put credentials into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*|arn:[^?#]+")
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?")
_REGION = re.compile(r"[A-Za-z0-9-]+")


@dataclass(frozen=True, slots=True)
class S3Address:
    """Bucket, prefix and server of an S3 address.

    Example:
        >>> S3Address.parse("s3://bucket/runs?scheme=http&endpoint_override=127.0.0.1:9000").endpoint_url
        'http://127.0.0.1:9000'
    """

    bucket: str
    prefix: str
    query: str = ""
    """As it was given, with its question mark."""
    endpoint_url: str | None = None
    region: str | None = None

    @classmethod
    def parse(cls, uri: str) -> S3Address:
        """Parse "s3://bucket/prefix?endpoint_override=...". Raises InvalidAddressError, which shows no secret."""
        path, query = split_query(uri)
        scheme, _, rest = path.partition("://")
        bucket, _, prefix = rest.partition("/")
        if without_password(path) != path:
            raise InvalidAddressError(
                f"{without_password(path)}: a password in an address is not accepted, and would be printed; "
                f"{_CREDENTIALS}"
            )
        if scheme not in SCHEMES or not _BUCKET.fullmatch(bucket):
            raise InvalidAddressError(
                f"{path!r} names no bucket: s3://bucket or s3://bucket/prefix is accepted; AWS_ENDPOINT_URL, or "
                "?endpoint_override=http://host:9000 at the end, names another server than Amazon's"
            )
        prefix = str(PurePosixPath(joined("", prefix.strip("/")))) if prefix.strip("/") else ""
        endpoint, region = _server(path, query)
        return cls(bucket, prefix, query, endpoint, region)

    @property
    def uri(self) -> str:
        """The whole address."""
        return "s3://" + "/".join(filter(None, (self.bucket, self.prefix))) + self.query


def is_s3(place: str | os.PathLike[str]) -> bool:
    """Whether an address is that of a bucket of S3."""
    scheme, separator, _ = os.fspath(place).partition("://")
    return bool(separator) and scheme in SCHEMES


def shown_query(path: str, query: str) -> str:
    """The query of an S3 address as it may be printed and stored: whole if it names a server, else nothing."""
    try:
        _server(path, query)
    except InvalidAddressError:
        return ""
    return query


def _server(path: str, query: str) -> tuple[str | None, str | None]:
    """Endpoint and region that a query names."""
    if not query:
        return None, None
    given = dict[str, str]()
    for name, value in parse_qsl(query[1:], keep_blank_values=True) or [(query[1:], "")]:
        if name not in PARAMETERS:
            secret = "secret" in name or "key" in name or "token" in name
            remedy = f"; {_CREDENTIALS}" if secret else ""
            raise InvalidAddressError(
                f"{path}: the query parameter {name!r} is not accepted; accepted: {_ACCEPTED}{remedy}"
            )
        if name in given:
            raise InvalidAddressError(f"{path}: the query parameter {name!r} is given twice; accepted: {_ACCEPTED}")
        given[name] = value
    region, scheme = given.get("region"), given.get("scheme")
    if region is not None and not _REGION.fullmatch(region):
        raise InvalidAddressError(
            f"{path}: region={region!r} is not accepted; accepted: the name of a region, as eu-west-1"
        )
    if scheme is not None and scheme not in ("http", "https"):
        raise InvalidAddressError(f"{path}: scheme={scheme!r} is not accepted; accepted: http and https")
    if "endpoint_override" not in given:
        if scheme is not None:
            raise InvalidAddressError(f"{path}: scheme={scheme!r} needs endpoint_override=host:port beside it")
        return None, region
    return _endpoint(path, given["endpoint_override"], scheme), region


def _endpoint(path: str, given: str, scheme: str | None) -> str:
    accepted = "accepted: host, host:port or http(s)://host:port"
    if "@" in given:
        raise InvalidAddressError(
            f"{path}: endpoint_override with a user or a password is not accepted; {accepted}; {_CREDENTIALS}"
        )
    own, separator, rest = given.partition("://")
    host = (rest if separator else given).rstrip("/")
    if separator and own not in ("http", "https"):
        raise InvalidAddressError(f"{path}: endpoint_override={masked(given)!r} is not accepted; {accepted}")
    if separator and scheme not in (None, own):
        raise InvalidAddressError(
            f"{path}: scheme={scheme!r} and endpoint_override={masked(given)!r} differ; give one of them"
        )
    if "/" in host:
        name = host.partition("/")[2]
        raise InvalidAddressError(
            f"{path}: endpoint_override={masked(given)!r} has a path, which is not accepted; the path in a bucket goes "
            f"before the question mark: {path}/{name}?...; AWS_ENDPOINT_URL takes a server with a path"
        )
    if not _HOST.fullmatch(host):
        raise InvalidAddressError(f"{path}: endpoint_override={masked(given)!r} is not accepted; {accepted}")
    return f"{own if separator else scheme or 'https'}://{host}"
