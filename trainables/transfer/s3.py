"""Amazon S3 and what speaks its language: `upload_dir="s3://bucket/prefix"`.

Endpoint, region, profile and credentials come from the environment and the config files, as boto3 reads them. Requests
are made with boto3's client and retried by it. Its transfer manager is not used: it reads a file once more to hash
it, knows no checksum of the whole of a file that is sent in parts, and costs twice the CPU for small files.
"""

from __future__ import annotations

import base64
import io
import logging
import re
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import closing, contextmanager
from pathlib import PurePosixPath
from typing import Any, Union

from trainables.errors import (
    MissingExtraError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreMissingError,
    TransferCorruptError,
    TransferError,
)
from trainables.threads import Threads
from trainables.transfer.base import Entry, Leftover, Progress, check_name, checked_key, joined
from trainables.transfer.crc import combined
from trainables.transfer.deadline import within
from trainables.transfer.local_files import Sink, Source
from trainables.transfer.objects import ObjectBackend, escaped, unescaped

log = logging.getLogger(__name__)

SMALL = 1024 * 1024
"""Up to so many bytes a file is sent by the thread that takes it up; beyond, by those that share the buffers."""
PART = 8 * 1024 * 1024
"""Bytes of a part of a large file; more when it would have more than 10,000 of them."""
COPY_LIMIT = 5 * 1024**3
"""S3 copies no larger object in one request."""
COPY_PART = 512 * 1024**2
DELETIONS = 1000
"""Keys per request, at most."""

_PARTS_AT_ONCE = 8
_MOST_PARTS = 10_000
_BLOCK = 256 * 1024
_CONNECTIONS = 64
_TRIES = 4
_NOT_FOR_US = (403, 405, 501)
"""What servers answer that know no such request, or do not let these keys make it."""
_MIB = 1024 * 1024


class S3Backend(ObjectBackend):
    """Objects of a bucket whose keys start with a prefix.

    Args:
        uri: "s3://bucket" or "s3://bucket/prefix".

    Raises:
        MissingExtraError: boto3 is not installed.
        StoreMissingError: the URI names no bucket.
    """

    threads = 16
    connect_timeout_s = 10.0
    read_timeout_s = 60.0
    """The server may be silent for so long; then the request is tried again, and at last fails."""

    def __init__(self, uri: str) -> None:
        try:
            import boto3  # noqa: F401
        except ImportError as error:
            raise MissingExtraError(f'{uri} needs boto3: pip install "tuner[s3]"') from error
        self.bucket, self.prefix = _parsed(uri)
        super().__init__("s3://" + "/".join(filter(None, (self.bucket, self.prefix))))
        self._lock = threading.Lock()
        self._made: Any = None
        self._pool = Threads(_PARTS_AT_ONCE, thread_name_prefix="s3-part")
        self._buffers = threading.local()

    def check(self, timeout_s: float = 10.0) -> None:
        where = {"Bucket": self.bucket, "Key": self._name(check_name())}

        def look() -> None:
            # Two tries that wait so long, and the pause between them, end in time.
            client = self._connected(
                connect_timeout=0.3 * timeout_s, read_timeout=0.45 * timeout_s, total_max_attempts=2
            )
            try:
                client.put_object(**where, Body=bytearray(b"can this be written?"))
                client.delete_object(**where)
            finally:
                client.close()

        with self._saying(""):
            within(timeout_s, look, self.uri)

    def children(self, prefix: str = "") -> list[str]:
        under = self._name(f"{checked_key(prefix)}/") if prefix else self._name("")
        found = set()
        with self._saying(prefix):
            for page in self._pages(under, Delimiter="/"):
                found |= {entry["Prefix"][len(under) :] for entry in page.get("CommonPrefixes", ())}
                found |= {entry["Key"][len(under) :] for entry in page.get("Contents", ())}
        return sorted(unescaped(name) for name in found - {"", "/"})

    def delete(self, keys: Sequence[str]) -> None:
        """The first key goes alone, before all others: a manifest before its payload. Those after it go in batches."""
        names = [self._name(checked_key(key)) for key in keys]
        with self._saying(keys[0] if keys else ""):
            if names:
                self._client.delete_object(Bucket=self.bucket, Key=names[0])
            self._delete(names[1:])

    def _delete_tree(self, prefix: str) -> None:
        with self._saying(prefix):
            found: list[str] = []
            for page in self._pages(self._name(f"{prefix}/")):
                found += [entry["Key"] for entry in page.get("Contents", ())]
            self._delete(found)

    def leftovers(self, prefix: str) -> list[Leftover]:
        """Uploads in parts that were begun. Where they may not be listed, the bucket's lifecycle rule removes them."""
        from botocore.exceptions import ClientError

        from trainables.transfer.s3_errors import code_of

        found = []
        with self._saying(prefix):
            pages = self._client.get_paginator("list_multipart_uploads")
            try:
                for page in pages.paginate(Bucket=self.bucket, Prefix=self._name(f"{checked_key(prefix)}/")):
                    for upload in page.get("Uploads", ()):
                        key = unescaped(upload["Key"][len(self._name("")) :])
                        found.append(Leftover(key, key, upload["UploadId"]))
            except ClientError as error:
                if code_of(error)[1] not in _NOT_FOR_US:
                    raise
                log.debug("%s: unfinished uploads cannot be listed: %s", self.url(prefix), error)
        return found

    def remove_leftovers(self, leftovers: Sequence[Leftover]) -> None:
        from botocore.exceptions import ClientError

        from trainables.transfer.s3_errors import code_of

        for leftover in leftovers:
            where = {"Bucket": self.bucket, "Key": self._name(leftover.key), "UploadId": leftover.token}
            with self._saying(leftover.key):
                try:
                    self._client.abort_multipart_upload(**where)
                except ClientError as error:
                    if code_of(error)[1] not in (404, *_NOT_FOR_US):
                        raise
                    log.debug("%s: an unfinished upload stays: %s", self.url(leftover.key), error)

    def renew(self) -> None:
        with self._lock:
            old, self._made = self._made, None
        if old is not None:
            old.close()  # idle connections; a request that is under way ends on its own

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        with self._lock:
            if self._made is not None:
                self._made.close()

    # --- one file ------------------------------------------------------------------------------------------

    def _send(self, source: Source, key: str, *, exclusive: bool) -> str:
        if source.size <= SMALL:
            data = bytearray(source.size)
            source.read_at(data, 0)
            receipt = self._put(data, key, exclusive=exclusive)
            source.moved(len(data))
            return receipt
        if source.size <= PART:
            return self._pool.submit(self._put_one, source, key, exclusive=exclusive).result()
        return self._put_parts(source, key, exclusive=exclusive)

    def _receive(self, key: str, sink: Sink) -> None:
        where = {"Bucket": self.bucket, "Key": self._name(key)}
        first = self._first(where)
        if first is None:
            return
        size = int(first["ContentRange"].rpartition("/")[2]) if "ContentRange" in first else first["ContentLength"]
        where["IfMatch"] = first["ETag"]
        if "ContentRange" not in first:  # a server that knows no ranges
            _fetch(self._client, where, sink, range(size), first)
            return
        with self._several() as submit:
            for start in range(PART, size, PART):
                submit(_fetch, self._client, where, sink, range(start, min(start + PART, size)))
            _fetch(self._client, where, sink, range(min(PART, size)), first)

    def _copy(self, known: str, key: str, *, exclusive: bool) -> str:
        if exclusive:  # few servers can make a copy exclusively; it is sent
            raise ObjectNotFoundError(f"{self.url(known)} is not copied: {self.url(key)} is to be created exclusively")
        source = {"Bucket": self.bucket, "Key": self._name(known)}
        held = self._client.head_object(**source, ChecksumMode="ENABLED")
        same = {"CopySource": source, "CopySourceIfMatch": held["ETag"]}
        if held["ContentLength"] > COPY_LIMIT:
            return self._copy_parts(same, held, key)
        made = self._client.copy_object(Bucket=self.bucket, Key=self._name(key), **same)
        answer, crc = made.get("CopyObjectResult", {}), _whole_crc(held)
        return self._verified(key, held["ContentLength"], crc, answer)

    def _size(self, key: str) -> int | None:
        try:
            held = self._client.head_object(Bucket=self.bucket, Key=self._name(key))
        except Exception as error:
            if isinstance(self._failure(error, self.url(key)), ObjectNotFoundError):
                return None
            raise
        return int(held["ContentLength"])

    def _remove(self, key: str) -> None:
        self._client.delete_object(Bucket=self.bucket, Key=self._name(key))

    def _walk(self, prefix: str) -> Iterator[Entry]:
        for page in self._pages(self._name(prefix)):
            for entry in page.get("Contents", ()):
                key = entry["Key"][len(self._name("")) :]
                if not key.endswith("/"):  # what consoles make to show an empty directory
                    yield Entry(unescaped(key), entry["Size"])

    def _failure(self, error: Exception, url: str) -> TransferError | None:
        from trainables.transfer.s3_errors import meaning

        return meaning(error, url)

    # --- sending -------------------------------------------------------------------------------------------

    def _put_one(self, source: Source, key: str, *, exclusive: bool) -> str:
        data = self._buffer(source.size)
        source.read_at(data, 0)
        return self._put(_Body(data, source.moved), key, exclusive=exclusive, crc=zlib.crc32(data))

    def _put(self, body: Union[bytearray, _Body], key: str, *, exclusive: bool, crc: int | None = None) -> str:
        if crc is None:
            crc = zlib.crc32(body)  # type: ignore[arg-type]
        put = {"Bucket": self.bucket, "Key": self._name(key), "Body": body, **self._checksum(crc)}
        if exclusive:
            answer = self._created(lambda: self._client.put_object(**put, IfNoneMatch="*"), key, len(body), crc)
        else:
            answer = self._client.put_object(**put)
        return self._verified(key, len(body), crc, answer)

    def _put_parts(self, source: Source, key: str, *, exclusive: bool) -> str:
        if exclusive and self._size(key) is not None:  # said before the bytes have moved, not after
            raise ObjectExistsError(f"{self.url(key)} is there already")
        step = max(PART, -(-source.size // _MOST_PARTS // _MIB) * _MIB)
        with self._upload(key) as upload:
            with self._several() as submit:
                futures = [
                    submit(self._put_part, source, upload, number, range(start, min(start + step, source.size)))
                    for number, start in enumerate(range(0, source.size, step), 1)
                ]
            crcs, parts = zip(*(future.result() for future in futures), strict=True)
            crc = combined(crcs)
            return self._completed(upload, key, parts, size=source.size, crc=crc, exclusive=exclusive)

    def _put_part(self, source: Source, upload: dict[str, Any], number: int, piece: range) -> Any:
        data = self._buffer(len(piece))
        source.read_at(data, piece.start)
        crc = zlib.crc32(data)
        sent = {**upload, "PartNumber": number, "Body": _Body(data, source.moved), **self._checksum(crc)}
        answer = self._client.upload_part(**sent)
        return (crc, len(piece)), {"PartNumber": number, "ETag": answer["ETag"], **_checksum_in(answer)}

    def _copy_parts(self, same: dict[str, Any], held: dict[str, Any], key: str) -> str:
        size, crc = held["ContentLength"], _whole_crc(held)
        step = max(COPY_PART, -(-size // _MOST_PARTS // _MIB) * _MIB)

        def one(number: int, piece: range) -> dict[str, Any]:
            asked = {"PartNumber": number, "CopySourceRange": f"bytes={piece.start}-{piece.stop - 1}"}
            answer = self._client.upload_part_copy(**upload, **same, **asked)["CopyPartResult"]
            return {"PartNumber": number, "ETag": answer["ETag"], **_checksum_in(answer)}

        with self._upload(key) as upload:
            with self._several() as submit:
                starts = enumerate(range(0, size, step), 1)
                futures = [submit(one, number, range(at, min(at + step, size))) for number, at in starts]
            parts = [future.result() for future in futures]
            return self._completed(upload, key, parts, size=size, crc=crc, exclusive=False)

    @contextmanager
    def _upload(self, key: str) -> Iterator[dict[str, Any]]:
        """An upload in parts; given up when what is done with it fails."""
        from botocore.exceptions import BotoCoreError, ClientError

        upload = {"Bucket": self.bucket, "Key": self._name(key)}
        kind = {"ChecksumAlgorithm": "CRC32", "ChecksumType": "FULL_OBJECT"} if self._checks else {}
        upload["UploadId"] = self._client.create_multipart_upload(**upload, **kind)["UploadId"]
        try:
            yield upload
        except BaseException:
            try:
                self._client.abort_multipart_upload(**upload)
            except (BotoCoreError, ClientError):
                pass  # the bucket's lifecycle rule removes it; what is raised is why it was given up
            raise

    def _completed(
        self, upload: dict[str, Any], key: str, parts: Sequence[Any], *, size: int, crc: int | None, exclusive: bool
    ) -> str:
        whole: dict[str, Any] = {"MultipartUpload": {"Parts": parts}}
        if self._checks and crc is not None:
            whole |= {"ChecksumCRC32": _encoded(crc), "ChecksumType": "FULL_OBJECT", "MpuObjectSize": size}
        if exclusive:
            call = lambda: self._client.complete_multipart_upload(**upload, **whole, IfNoneMatch="*")  # noqa: E731
            answer = self._created(call, key, size, crc)
        else:
            answer = self._client.complete_multipart_upload(**upload, **whole)
        return self._verified(key, size, crc, answer)

    def _created(self, call: Callable[[], Any], key: str, size: int, crc: int | None) -> Any:
        """What a creation answered. One that was refused after a try whose answer was lost may be our own."""
        from botocore.exceptions import ClientError

        from trainables.transfer.s3_errors import code_of

        try:
            return call()
        except ClientError as error:
            _, status = code_of(error)
            if status not in (409, 412):
                raise
            if status == 409 and self._size(key) is None:  # both of two that tried at once may get this
                raise TransferError(f"{self.url(key)}: another is creating it: {error}", transient=True) from error
            if not error.response["ResponseMetadata"].get("RetryAttempts") or not self._holds(key, size, crc):
                raise ObjectExistsError(f"{self.url(key)} is there already") from error
            return {}

    def _holds(self, key: str, size: int, crc: int | None) -> bool:
        """Whether an object has this content."""
        with closing(self._client.get_object(Bucket=self.bucket, Key=self._name(key))["Body"]) as body:
            found = length = 0
            for piece in body.iter_chunks(_BLOCK):
                found, length = zlib.crc32(piece, found), length + len(piece)
        return (length, found) == (size, crc)

    # --- checksums -----------------------------------------------------------------------------------------

    @property
    def _checks(self) -> bool:
        """Whether checksums are sent; AWS_REQUEST_CHECKSUM_CALCULATION=when_required is for servers that know none."""
        return bool(self._client.meta.config.request_checksum_calculation != "when_required")

    def _checksum(self, crc: int) -> dict[str, str]:
        return {"ChecksumAlgorithm": "CRC32", "ChecksumCRC32": _encoded(crc)} if self._checks else {}

    def _verified(self, key: str, size: int, crc: int | None, answer: dict[str, Any]) -> str:
        """Compare with what the server says that it holds; its checksum, "" when it has none of the whole."""
        held = _whole_crc(answer)
        if held is None:
            told = self._client.head_object(Bucket=self.bucket, Key=self._name(key), ChecksumMode="ENABLED")
            if told["ContentLength"] != size:
                text = f"{self.url(key)} has {told['ContentLength']} bytes there, {size} were sent"
                raise TransferCorruptError(text, transient=True)
            held = _whole_crc(told)
        if held is None:
            return ""
        if crc is not None and held != crc:
            text = f"{self.url(key)} has CRC-32 {held:08x} there, {crc:08x} was sent"
            raise TransferCorruptError(text, transient=True)
        return f"crc32:{held:08x}"

    # --- requests ------------------------------------------------------------------------------------------

    def _name(self, key: str) -> str:
        """The object's name."""
        return f"{self.prefix}/{escaped(key)}" if self.prefix else escaped(key)

    @property
    def _client(self) -> Any:
        with self._lock:
            if self._made is None:
                timeouts = {"connect_timeout": self.connect_timeout_s, "read_timeout": self.read_timeout_s}
                self._made = self._connected(**timeouts)
            return self._made

    def _connected(self, **options: Any) -> Any:
        """A client of a session of its own: credentials, profile and endpoint are read anew."""
        import boto3
        from botocore.config import Config

        with self._saying(""):
            session = boto3.session.Session()
            retries = {"mode": "standard"} if "total_max_attempts" in options else {}
            if retries:
                retries["total_max_attempts"] = options.pop("total_max_attempts")
            # Said as a whole: boto3 would put its own together anew for each request, a tenth of a small one's cost.
            agent = f"tuner Boto3/{boto3.__version__}"
            config = Config(max_pool_connections=_CONNECTIONS, retries=retries or None, user_agent=agent, **options)
            client = session.client("s3", config=config)
            signing = (client.meta.config.s3 or {}).get("payload_signing_enabled")
            if client.meta.endpoint_url.startswith("https:") and signing is None:
                # TLS and the checksum guard the content; boto3 would hash it once more for the signature.
                client = session.client("s3", config=config.merge(Config(s3={"payload_signing_enabled": False})))
        client.meta.events.register_first("request-created.s3", _signing)
        client.meta.events.register_last("request-created.s3", _sending)
        return client

    def _pages(self, prefix: str, **how: str) -> Iterator[dict[str, Any]]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix, **how)
        yield from pages

    def _first(self, where: dict[str, Any]) -> dict[str, Any] | None:
        """The first part of an object, from which its size is known; None when it is empty."""
        from botocore.exceptions import ClientError

        from trainables.transfer.s3_errors import code_of

        try:
            return self._client.get_object(**where, Range=f"bytes=0-{PART - 1}")  # type: ignore[no-any-return]
        except ClientError as error:
            if code_of(error)[1] == 416:
                return None
            raise

    def _delete(self, names: Sequence[str]) -> None:
        from botocore.exceptions import ClientError

        for start in range(0, len(names), DELETIONS):
            batch = {"Objects": [{"Key": name} for name in names[start : start + DELETIONS]], "Quiet": True}
            for error in self._client.delete_objects(Bucket=self.bucket, Delete=batch).get("Errors", ()):
                if error.get("Code") != "NoSuchKey":
                    raise ClientError({"Error": error}, "DeleteObjects")

    def _buffer(self, size: int) -> memoryview:
        """Memory of this thread, used again for each part: fresh pages would cost as much as hashing."""
        held = getattr(self._buffers, "held", b"")
        if len(held) < size:
            held = self._buffers.held = bytearray(max(size, PART))
        return memoryview(held)[:size]

    @contextmanager
    def _several(self) -> Iterator[Callable[..., Future[Any]]]:
        """Submits work; all of it has ended at the end, and the first error is raised."""
        futures: list[Future[Any]] = []

        def submit(work: Callable[..., Any], *arguments: Any) -> Future[Any]:
            futures.append(self._pool.submit(work, *arguments))
            return futures[-1]

        try:
            yield submit
            for future in futures:
                future.result()
        except BaseException:
            for future in futures:
                future.cancel()
            wait(futures)
            raise


class _Body:
    """What a request sends, from memory. What is read counts as moved, once, and not while it is read to be signed."""

    def __init__(self, data: memoryview, progress: Progress) -> None:
        self._data = data
        self._progress = progress
        self._at = self._told = 0
        self.sending = False

    def __len__(self) -> int:
        return len(self._data)

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._data)}[whence]
        return self._at

    def read(self, count: int | None = -1) -> memoryview:
        """The next block, of more than asked for: urllib3 takes 16 KiB at a time, which costs more than the sending."""
        count = len(self._data) if count is None or count < 0 else max(count, _BLOCK)
        block = self._data[self._at : self._at + count]
        self._at += len(block)
        if self.sending and self._at > self._told:
            moved, self._told = self._at - self._told, self._at
            self._progress(moved)
        return block


def _signing(request: Any, **_: Any) -> None:
    if isinstance(request.body, _Body):
        request.body.sending = False


def _sending(request: Any, **_: Any) -> None:
    if isinstance(request.body, _Body):
        request.body.sending = True


def _fetch(client: Any, where: dict[str, Any], sink: Sink, piece: range, answer: Any = None) -> None:
    """A range of an object; what is missing of one that was cut off is asked for again."""
    from trainables.transfer.s3_errors import CUT

    at, tries = piece.start, 0
    while at < piece.stop:
        try:
            if answer is None:
                answer = client.get_object(**where, Range=f"bytes={at}-{piece.stop - 1}")
            with closing(answer["Body"]) as body:  # also when whoever watches stops it
                for block in body.iter_chunks(_BLOCK):
                    sink.write_at(block, at)
                    at, tries = at + len(block), 0
        except CUT:
            tries += 1
            if tries == _TRIES:
                raise
        answer = None


def _parsed(uri: str) -> tuple[str, str]:
    """Bucket and prefix."""
    scheme, _, rest = uri.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme not in ("s3", "s3a", "s3n") or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*|arn:[^?#]+", bucket):
        text = "s3://bucket or s3://bucket/prefix is accepted; AWS_ENDPOINT_URL names another server than Amazon's"
        raise StoreMissingError(f"{uri!r} names no bucket: {text}")
    return bucket, str(PurePosixPath(joined("", prefix.strip("/")))) if prefix.strip("/") else ""


def _encoded(crc: int) -> str:
    return base64.b64encode(crc.to_bytes(4, "big")).decode()


def _checksum_in(answer: dict[str, Any]) -> dict[str, str]:
    return {"ChecksumCRC32": answer["ChecksumCRC32"]} if "ChecksumCRC32" in answer else {}


def _whole_crc(answer: dict[str, Any]) -> int | None:
    """The CRC-32 of all of an object, as the server says it; None where it has none, or only one of its parts' ones."""
    told = answer.get("ChecksumCRC32")
    if not told or "-" in told or answer.get("ChecksumType", "FULL_OBJECT") != "FULL_OBJECT":
        return None
    return int.from_bytes(base64.b64decode(told), "big")
