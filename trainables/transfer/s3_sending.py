"""Uploads to S3: single and multipart, with checksums that the server compares and is asked for again."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import closing, contextmanager, suppress
from types import MappingProxyType
from typing import Any, Union

from trainables.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    TransferCorruptError,
    TransferError,
)
from trainables.threads import Threads
from trainables.transfer import s3_requests
from trainables.transfer.clouds import CloudBackend
from trainables.transfer.crc import combined
from trainables.transfer.local_files import Source
from trainables.transfer.s3_address import S3Address
from trainables.transfer.s3_direct import DirectClient
from trainables.transfer.s3_extra_args import for_copy

SMALL = 1024 * 1024
"""Up to so many bytes a file is sent by the thread that takes it up; beyond, by those that share the buffers."""
PART = 8 * 1024 * 1024
"""Bytes of a part of a large file; more when it would have more than 10,000 of them."""
COPY_LIMIT = 5 * 1024**3
"""S3 copies no larger object in one request."""
COPY_PART = 512 * 1024**2
_PARTS_AT_ONCE = 8
_MOST_PARTS = 10_000
_MIB = 1024 * 1024


class S3Sending(CloudBackend):
    """The uploading part of `S3Backend`: put, multipart upload, copy."""

    threads = 16
    connect_timeout_s = 10.0
    read_timeout_s = 60.0
    """The server may be silent for so long; then the request is tried again, and at last fails."""

    needs = ("boto3", "boto3", "s3")

    def __init__(self, uri: str, extra_args: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.extra_args = extra_args
        self.address = S3Address.parse(uri)
        self.bucket = self.address.bucket
        super().__init__(self.address.uri)
        self._pool = Threads(_PARTS_AT_ONCE, thread_name_prefix="s3-part")
        self._buffers = threading.local()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        super().close()

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

    def _copy(self, known: str, key: str, *, exclusive: bool) -> str:
        if exclusive:  # few servers can make a copy exclusively; it is sent
            raise ObjectNotFoundError(f"{self.url(known)} is not copied: {self.url(key)} is to be created exclusively")
        source = {"Bucket": self.bucket, "Key": self._name(known)}
        held = self._client.head_object(**source, ChecksumMode="ENABLED")
        same = {"CopySource": source, "CopySourceIfMatch": held["ETag"]}
        if held["ContentLength"] > COPY_LIMIT:
            return self._copy_parts(same, held, key)
        made = self._client.copy_object(Bucket=self.bucket, Key=self._name(key), **same, **for_copy(self.extra_args))
        answer, crc = made.get("CopyObjectResult", {}), s3_requests.whole_crc(held)
        return self._verified(key, held["ContentLength"], crc, answer)

    def _size(self, key: str) -> int | None:
        try:
            held = self._client.head_object(Bucket=self.bucket, Key=self._name(key))
        except Exception as error:
            if isinstance(self._failure(error, self.url(key)), ObjectNotFoundError):
                return None
            raise
        return int(held["ContentLength"])

    def _failure(self, error: Exception, url: str) -> TransferError | None:
        from trainables.transfer.s3_errors import meaning

        return meaning(error, url)

    def _put_one(self, source: Source, key: str, *, exclusive: bool) -> str:
        data = self._buffer(source.size)
        source.read_at(data, 0)
        return self._put(s3_requests.Body(data, source.moved), key, exclusive=exclusive, crc=zlib.crc32(data))

    def _put(
        self, body: Union[bytearray, s3_requests.Body], key: str, *, exclusive: bool, crc: int | None = None
    ) -> str:
        if crc is None:
            crc = zlib.crc32(body)  # type: ignore[arg-type]
        put = {"Bucket": self.bucket, "Key": self._name(key), "Body": body, **self._checksum(crc), **self.extra_args}
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
        sent = {**upload, "PartNumber": number, "Body": s3_requests.Body(data, source.moved), **self._checksum(crc)}
        answer = self._client.upload_part(**sent)
        return (crc, len(piece)), {"PartNumber": number, "ETag": answer["ETag"], **s3_requests.checksum_in(answer)}

    def _copy_parts(self, same: dict[str, Any], held: dict[str, Any], key: str) -> str:
        size, crc = held["ContentLength"], s3_requests.whole_crc(held)
        step = max(COPY_PART, -(-size // _MOST_PARTS // _MIB) * _MIB)

        def one(number: int, piece: range) -> dict[str, Any]:
            asked = {"PartNumber": number, "CopySourceRange": f"bytes={piece.start}-{piece.stop - 1}"}
            answer = self._client.upload_part_copy(**upload, **same, **asked)["CopyPartResult"]
            return {"PartNumber": number, "ETag": answer["ETag"], **s3_requests.checksum_in(answer)}

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
        upload["UploadId"] = self._client.create_multipart_upload(**upload, **kind, **self.extra_args)["UploadId"]
        try:
            yield upload
        except BaseException:
            with suppress(BotoCoreError, ClientError):  # the bucket's lifecycle rule removes it
                self._client.abort_multipart_upload(**upload)
            raise  # why it was given up

    def _completed(
        self, upload: dict[str, Any], key: str, parts: Sequence[Any], *, size: int, crc: int | None, exclusive: bool
    ) -> str:
        whole: dict[str, Any] = {"MultipartUpload": {"Parts": parts}}
        if self._checks and crc is not None:
            whole |= {"ChecksumCRC32": s3_requests.encoded(crc), "ChecksumType": "FULL_OBJECT", "MpuObjectSize": size}
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
            for piece in body.iter_chunks(s3_requests.BLOCK):
                found, length = zlib.crc32(piece, found), length + len(piece)
        return (length, found) == (size, crc)

    @property
    def _checks(self) -> bool:
        """Whether checksums are sent; AWS_REQUEST_CHECKSUM_CALCULATION=when_required is for servers that know none."""
        return bool(self._client.meta.config.request_checksum_calculation != "when_required")

    def _checksum(self, crc: int) -> dict[str, str]:
        return {"ChecksumAlgorithm": "CRC32", "ChecksumCRC32": s3_requests.encoded(crc)} if self._checks else {}

    def _verified(self, key: str, size: int, crc: int | None, answer: dict[str, Any]) -> str:
        """Compare with what the server says that it holds; its checksum, "" when it has none of the whole."""
        held = s3_requests.whole_crc(answer)
        if held is None:
            told = self._client.head_object(Bucket=self.bucket, Key=self._name(key), ChecksumMode="ENABLED")
            if told["ContentLength"] != size:
                text = f"{self.url(key)} has {told['ContentLength']} bytes there, {size} were sent"
                raise TransferCorruptError(text, transient=True)
            held = s3_requests.whole_crc(told)
        if held is None:
            return ""
        if crc is not None and held != crc:
            text = f"{self.url(key)} has CRC-32 {held:08x} there, {crc:08x} was sent"
            raise TransferCorruptError(text, transient=True)
        return f"crc32:{held:08x}"

    def _connect(self) -> Any:
        return self._connected(connect_timeout=self.connect_timeout_s, read_timeout=self.read_timeout_s)

    def _connected(self, **options: Any) -> Any:
        from trainables.transfer.s3_errors import invalid_endpoint

        with self._saying(""):
            try:
                return DirectClient(*s3_requests.new_client(self.address, **options))
            except ValueError as error:
                raise invalid_endpoint(error, self.uri) from error

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
