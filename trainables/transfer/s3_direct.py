"""PUTs to S3 without the layers of boto3, which take ten times the CPU of all else that a small file costs.

boto3 is what configures: the first PUT of a client is boto3's, and shows where and how to send (server, path or host
of the bucket, region, what is signed). Those that are like it go over kept connections. What is not plainly done is
boto3's again: it is shown the answer, or the failure, as that of its first try, so that retries, pauses between them,
redirects, errors, and what a lost answer means are as they are without this module. The next PUT learns anew.
"""

from __future__ import annotations

import io
import re
import ssl
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlsplit

from trainables.transfer import s3_extra_args
from trainables.transfer.s3_connection import Answered, Connection, NotConnected
from trainables.transfer.s3_requests import Body
from trainables.transfer.s3_signature import authorization

_PARAMETERS = {"Bucket", "Key", "Body", "ChecksumAlgorithm", "ChecksumCRC32", "IfNoneMatch", "UploadId", "PartNumber"}
_PARAMETERS |= {*s3_extra_args.HEADERS, "Metadata"}
_HEADERS = {
    *s3_extra_args.HEADERS.values(),
    "amz-sdk-invocation-id",
    "amz-sdk-request",
    "authorization",
    "content-length",
    "expect",
    "if-none-match",
    "user-agent",
    "x-amz-checksum-crc32",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-security-token",
}
"""Of a PUT that can be sent without boto3: with any other it is left to boto3."""
_SCOPE = re.compile(r"AWS4-HMAC-SHA256 Credential=[^,]+/\d{8}/([^/,]+)/s3/aws4_request, ")
_UNSIGNED = "UNSIGNED-PAYLOAD"


class DirectClient:
    """boto3's client of one bucket, whose `put_object` and `upload_part` go round it where they can.

    Args:
        boto: boto3's client.
        session: botocore's session that it is of, for credentials and certificates.
    """

    def __init__(self, boto: Any, session: Any) -> None:
        self._boto = boto
        self._session = session
        self._route: _Route | None = None
        self._here = _Here()
        for operation in ("PutObject", "UploadPart"):
            boto.meta.events.register_last(f"before-send.s3.{operation}", self._before_send)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._boto, name)

    def put_object(self, **asked: Any) -> Any:
        return self._put(self._boto.put_object, asked)

    def upload_part(self, **asked: Any) -> Any:
        return self._put(self._boto.upload_part, asked)

    def close(self) -> None:
        self._forget(self._route)
        self._boto.close()  # idle connections; a request that is under way ends on its own

    def _put(self, by_boto: Callable[..., Any], asked: dict[str, Any]) -> Any:
        route = self._route
        if route is None or "ChecksumCRC32" not in asked or not asked.keys() <= _PARAMETERS:
            return self._by_boto(by_boto, asked, None)
        outcome = route.put(asked)
        if isinstance(outcome, dict):
            return outcome
        self._forget(route)
        if isinstance(asked["Body"], Body):
            asked["Body"].seek(0)
        return self._by_boto(by_boto, asked, outcome)

    def _by_boto(self, call: Callable[..., Any], asked: dict[str, Any], first: Answered | Exception | None) -> Any:
        """Let boto3 do it, beginning with this outcome of a first try, and learn from what it sent at last."""
        self._here.outcome, self._here.sent = first, None
        try:
            answer = call(**asked)
        finally:
            sent, self._here.sent = self._here.sent, None
        if self._route is None and sent is not None and "ChecksumCRC32" in asked:
            self._route = _Route.of(sent, asked["Key"], self._boto.meta.config, self._session)
        return answer

    def _forget(self, route: _Route | None) -> None:
        if self._route is route:
            self._route = None
        if route is not None:
            route.close()

    def _before_send(self, request: Any, **_: Any) -> Any:
        outcome, self._here.outcome = self._here.outcome, None
        self._here.sent = request
        if isinstance(outcome, Exception):
            raise _in_botos_words(outcome, request)
        if outcome is None:
            return None
        from botocore.awsrequest import AWSResponse

        return AWSResponse(request.url, outcome.status, outcome.headers, _Read(outcome.body))


class _Here(threading.local):
    """What a thread tells the hook, and is told by it."""

    outcome: Answered | Exception | None = None
    sent: Any = None


@dataclass(eq=False, repr=False)
class _Route:
    """Where and how PUTs of a client go."""

    above: str
    """The path of an object without its key."""
    host: str
    """As it is signed."""
    address: tuple[str, int]
    tls: ssl.SSLContext | None
    region: str
    signs_content: bool
    agent: str
    credentials: Any
    timeouts: tuple[float, float]
    """Seconds to connect, and in which something has to move."""
    idle: deque[Connection] = field(default_factory=deque)
    closed: bool = False

    def __post_init__(self) -> None:
        weakref.finalize(self, _close, self.idle)

    @classmethod
    def of(cls, request: Any, key: str, config: Any, session: Any) -> _Route | None:
        """That of a request that boto3 sends; None when there is anything about it that this module does not know."""
        from botocore.utils import get_environ_proxies

        url = urlsplit(request.url)
        headers = {name.lower(): _text(value) for name, value in request.headers.items()}
        scope = _SCOPE.match(headers.get("authorization", ""))
        content = headers.get("x-amz-content-sha256", "")
        key = _quoted(key)
        credentials = session.get_credentials()
        if (
            not {name for name in headers if not name.startswith(s3_extra_args.METADATA)} <= _HEADERS
            or scope is None
            or credentials is None
            or not re.fullmatch(f"{_UNSIGNED}|[0-9a-f]{{64}}", content)
            or not url.path.endswith(f"/{key}")
            or url.hostname is None
            or url.scheme not in ("http", "https")
            or url.scheme in (config.proxies or get_environ_proxies(request.url))
        ):
            return None
        return cls(
            above=url.path[: -len(key)],
            host=url.netloc.removesuffix(":443" if url.scheme == "https" else ":80"),
            address=(url.hostname, url.port or (443 if url.scheme == "https" else 80)),
            tls=_tls(session) if url.scheme == "https" else None,
            region=scope[1],
            signs_content=content != _UNSIGNED,
            agent=headers.get("user-agent", ""),
            credentials=credentials,
            timeouts=(config.connect_timeout, config.read_timeout),
        )

    def put(self, asked: dict[str, Any]) -> dict[str, str] | Answered | Exception:
        """Send; what boto3 would return of it, else what came of it."""
        body = asked["Body"]
        view = body
        if isinstance(body, Body):
            view, body.sending = body.data, True
        frozen = self.credentials.get_frozen_credentials()  # made anew when they run out
        path = self.above + _quoted(asked["Key"])
        query = ""
        if "UploadId" in asked:
            query = f"partNumber={asked['PartNumber']}&uploadId={quote(asked['UploadId'], safe='-_.~')}"
        headers = {
            "host": self.host,
            "x-amz-checksum-crc32": asked["ChecksumCRC32"],
            "x-amz-content-sha256": sha256(view).hexdigest() if self.signs_content else _UNSIGNED,
            "x-amz-date": time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()),
            "x-amz-sdk-checksum-algorithm": asked["ChecksumAlgorithm"],
        }
        headers |= s3_extra_args.headers_of(asked)
        if "IfNoneMatch" in asked:
            headers["if-none-match"] = asked["IfNoneMatch"]
        if frozen.token:
            headers["x-amz-security-token"] = frozen.token
        signed = authorization(
            path,
            query,
            headers,
            access_key=frozen.access_key,
            secret_key=frozen.secret_key,
            region=self.region,
        )
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = (
            f"PUT {path}{'?' if query else ''}{query} HTTP/1.1\r\n{lines}authorization: {signed}\r\n"
            f"user-agent: {self.agent}\r\ncontent-length: {len(view)}\r\n\r\n"
        )
        return self._exchange(head.encode("latin-1"), body)

    def _exchange(self, head: bytes, body: Any) -> dict[str, str] | Answered | Exception:
        connection = None
        try:
            connection = self._connection()
            answer = connection.exchange(head, body)
        except Exception as error:  # whatever it is, boto3 says it, or tries again
            if connection is not None:
                connection.close()
            return error
        except BaseException:  # whoever watches has stopped it
            if connection is not None:
                connection.close()
            raise
        if connection.open:
            self._keep(connection)
        if answer.status != 200:
            return answer
        return {said: answer.headers[name] for name, said in _SAID.items() if name in answer.headers}

    def _connection(self) -> Connection:
        with suppress(IndexError):
            while True:
                connection = self.idle.pop()
                if connection.usable():
                    return connection
                connection.close()
        return Connection(self.address, self.tls, *self.timeouts)

    def _keep(self, connection: Connection) -> None:
        self.idle.append(connection)
        if self.closed:
            _close(self.idle)

    def close(self) -> None:
        """Connections that are under way are closed when they have their answer."""
        self.closed = True
        _close(self.idle)


def _close(idle: deque[Connection]) -> None:
    with suppress(IndexError):  # others take from it too
        while True:
            idle.pop().close()


_SAID = {"etag": "ETag", "x-amz-checksum-crc32": "ChecksumCRC32", "x-amz-checksum-type": "ChecksumType"}
"""Of an answer's headers: as boto3 names them."""


class _Read(io.BytesIO):
    """A body as boto3 reads it."""

    def stream(self) -> Iterator[bytes]:
        yield self.read()


def _in_botos_words(error: Exception, request: Any) -> Exception:
    """The exception with which boto3 would have met this failure."""
    from botocore import exceptions as boto

    said: Exception = error
    if isinstance(error, NotConnected):
        cause, where = error.__cause__, request.url
        if isinstance(cause, ssl.SSLError):
            said = boto.SSLError(endpoint_url=where, error=cause)
        elif isinstance(cause, TimeoutError):
            said = boto.ConnectTimeoutError(endpoint_url=where, error=cause)
        else:
            said = boto.EndpointConnectionError(endpoint_url=where, error=cause)
    elif isinstance(error, TimeoutError):
        said = boto.ReadTimeoutError(endpoint_url=request.url, error=error)
    elif isinstance(error, OSError):
        said = boto.ConnectionClosedError(endpoint_url=request.url, error=error, request=request)
    return said


def _tls(session: Any) -> ssl.SSLContext:
    """What boto3 trusts."""
    from botocore.httpsession import create_urllib3_context, get_cert_path

    context: ssl.SSLContext = create_urllib3_context()
    context.check_hostname = True  # urllib3 compares the name itself
    context.load_verify_locations(get_cert_path(session.get_config_variable("ca_bundle") or True))
    return context


def _quoted(key: str) -> str:
    return quote(key, safe="/~")


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value
