"""Back end for Amazon S3 and compatible stores: `upload_dir="s3://bucket/prefix"`.

Endpoint, region, profile and credentials come from the environment and the config files, as boto3 reads them. An
address may name an endpoint and a region too: `s3://bucket/prefix?endpoint_override=http://host:9000`. Requests are
made with boto3's client and retried by it, uploads past it where nothing is unusual (s3_direct.py).
boto3's transfer manager is not used: it reads a file once more to hash it, and knows no checksum of the whole of a file
that is sent in parts.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from trainables.transfer import s3_requests
from trainables.transfer.backend import Leftover, check_name, checked_key
from trainables.transfer.deadline import within
from trainables.transfer.local_files import Sink
from trainables.transfer.objects import unescaped
from trainables.transfer.s3_sending import PART, S3Sending

log = logging.getLogger(__name__)

DELETIONS = 1000
"""Keys per request, at most."""

_NOT_FOR_US = (403, 405, 501)
"""What servers answer that know no such request, or do not let these keys make it."""


class S3Backend(S3Sending):
    """Objects of a bucket whose keys start with a prefix.

    Args:
        uri: "s3://bucket" or "s3://bucket/prefix", and perhaps a query that names a server: `S3Address`.
        extra_args: arguments of each upload, as `checked_extra_args` returns them.

    Raises:
        MissingExtraError: boto3 is not installed.
        InvalidAddressError: the URI names no bucket.
    """

    def check(self, timeout_s: float = 10.0) -> None:
        where = {"Bucket": self.bucket, "Key": self._name(check_name())}

        def look() -> None:
            # Two tries that wait so long, and the pause between them, end in time.
            client = self._connected(
                connect_timeout=0.3 * timeout_s, read_timeout=0.45 * timeout_s, total_max_attempts=2
            )
            try:
                client.put_object(**where, Body=bytearray(b"can this be written?"), **self.extra_args)
                client.delete_object(**where)
            finally:
                client.close()

        with self._saying(""):
            within(timeout_s, look, self.uri)

    def delete(self, keys: Sequence[str]) -> None:
        """The first key goes alone, before all others: a manifest before its payload. Those after it go in batches."""
        names = [self._name(checked_key(key)) for key in keys]
        with self._saying(keys[0] if keys else ""):
            if names:
                self._client.delete_object(Bucket=self.bucket, Key=names[0])
            self._delete(names[1:])

    def _delete_tree(self, prefix: str) -> None:
        with self._saying(prefix):
            self._delete([name for name, _ in self._objects(self._name(f"{prefix}/"))])

    def leftovers(self, prefix: str) -> list[Leftover]:
        """Uploads in parts that were begun. Where they may not be listed, the bucket's lifecycle rule removes them."""
        found = []
        with self._tolerating({404, *_NOT_FOR_US}, prefix, "unfinished uploads cannot be listed"):
            pages = self._client.get_paginator("list_multipart_uploads")
            for page in pages.paginate(Bucket=self.bucket, Prefix=self._name(f"{checked_key(prefix)}/")):
                for upload in page.get("Uploads", ()):
                    key = unescaped(upload["Key"][len(self._above) :])
                    found.append(Leftover(key, key, upload["UploadId"]))
        return found

    def remove_leftovers(self, leftovers: Sequence[Leftover]) -> None:
        for leftover in leftovers:
            where = {"Bucket": self.bucket, "Key": self._name(leftover.key), "UploadId": leftover.token}
            with self._tolerating({404, *_NOT_FOR_US}, leftover.key, "an unfinished upload stays"):
                self._client.abort_multipart_upload(**where)

    @contextmanager
    def _tolerating(self, statuses: Container[int], key: str, otherwise: str) -> Iterator[None]:
        """Do without what the server refuses with one of these statuses."""
        from botocore.exceptions import ClientError

        from trainables.transfer.s3_errors import code_of

        with self._saying(key):
            try:
                yield
            except ClientError as error:
                if code_of(error)[1] not in statuses:
                    raise
                log.debug("%s: %s: %s", self.url(key), otherwise, error)

    def _receive(self, key: str, sink: Sink) -> None:
        where = {"Bucket": self.bucket, "Key": self._name(key)}
        first = self._first(where)
        if first is None:
            return
        size = int(first["ContentRange"].rpartition("/")[2]) if "ContentRange" in first else first["ContentLength"]
        where["IfMatch"] = first["ETag"]
        if "ContentRange" not in first:  # a server that knows no ranges
            s3_requests.fetch(self._client, where, sink, range(size), first)
            return
        with self._several() as submit:
            for start in range(PART, size, PART):
                submit(s3_requests.fetch, self._client, where, sink, range(start, min(start + PART, size)))
            s3_requests.fetch(self._client, where, sink, range(min(PART, size)), first)

    def _remove(self, key: str) -> None:
        self._client.delete_object(Bucket=self.bucket, Key=self._name(key))

    def _objects(self, above: str) -> Iterator[tuple[str, int]]:
        for page in self._pages(above):
            yield from ((entry["Key"], entry["Size"]) for entry in page.get("Contents", ()))

    def _level(self, above: str) -> Iterator[str]:
        for page in self._pages(above, Delimiter="/"):
            yield from (entry["Prefix"] for entry in page.get("CommonPrefixes", ()))
            yield from (entry["Key"] for entry in page.get("Contents", ()))

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
