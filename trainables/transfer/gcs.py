"""Back end for Google Cloud Storage: `gs://bucket/path`.

Credentials are Google's application default ones; `STORAGE_EMULATOR_HOST` names another server, as Google's own
library has it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from trainables import errors
from trainables.transfer.clouds import BUSY, TRANSIENT, CloudBackend
from trainables.transfer.local_files import Sink, Source

_TIMEOUT = (10, 60)
"""Seconds until there is a connection, and between two bytes of an answer."""
_RETRY_S = 60.0
"""So long one request is repeated before the transfer is given up, for the queue to try it again."""
_CHUNK = 8 * 1024 * 1024
_MARK = "writer"


class GcsBackend(CloudBackend):
    """Objects under a prefix of a bucket.

    Every upload carries a CRC32C that the service compares; exclusive ones a generation that must not be there yet.

    Args:
        uri: `gs://bucket` or `gs://bucket/path`.
        patient: repeat a request that failed in passing.
    """

    needs = ("google.cloud.storage", "google-cloud-storage", "gcs")

    def _send(self, source: Source, key: str, *, exclusive: bool) -> str:
        from google.cloud.storage.retry import DEFAULT_RETRY

        blob = self._blob(key, chunk_size=_CHUNK)
        mark = secrets.token_hex(16)
        if exclusive:
            blob.metadata = {_MARK: mark}
        try:
            blob.upload_from_file(
                source,
                size=source.size,
                content_type="application/octet-stream",
                if_generation_match=0 if exclusive else None,
                checksum="crc32c",
                timeout=_TIMEOUT,
                retry=DEFAULT_RETRY.with_timeout(_RETRY_S) if self._patient else None,
            )
        except Exception as error:
            failure = self._failure(error, self.url(key))
            if isinstance(failure, errors.ObjectNotFoundError):
                raise self._no_bucket() from error  # nothing else can be missing where one writes
            if not exclusive or not isinstance(failure, errors.ObjectExistsError):
                raise
            there = self._bucket().get_blob(blob.name, timeout=_TIMEOUT)
            if there is None or (there.metadata or {}).get(_MARK) != mark:
                raise
            blob = there  # it was ours: the answer was lost and the library asked again
        if blob.size != source.size:
            raise errors.TransferCorruptError(
                f"{self.url(key)} has {blob.size} bytes, sent were {source.size}", transient=True
            )
        return f"crc32c:{blob.crc32c}"

    def _receive(self, key: str, sink: Sink) -> None:
        # raw: no one decompresses what somebody declared to be compressed
        self._blob(key).download_to_file(sink, raw_download=True, checksum="crc32c", timeout=_TIMEOUT)

    def _copy(self, known: str, key: str, *, exclusive: bool) -> str:
        target, token = self._blob(key), None
        while True:
            token, _, _ = target.rewrite(
                self._blob(known), token=token, if_generation_match=0 if exclusive else None, timeout=_TIMEOUT
            )
            if token is None:
                return f"crc32c:{target.crc32c}"

    def _size(self, key: str) -> int | None:
        blob = self._bucket().get_blob(self._name(key), timeout=_TIMEOUT)
        return None if blob is None else int(blob.size)

    def _objects(self, above: str) -> Iterator[tuple[str, int]]:
        fields = "items(name,size),nextPageToken"
        for blob in self._client.list_blobs(self._place, prefix=above, fields=fields, timeout=_TIMEOUT):
            yield blob.name, blob.size

    def _level(self, above: str) -> list[str]:
        found = self._client.list_blobs(self._place, prefix=above, delimiter="/", timeout=_TIMEOUT)
        return [*(blob.name for blob in found), *found.prefixes]

    def _remove(self, key: str) -> None:
        from google.api_core.exceptions import NotFound

        with suppress(NotFound):
            self._blob(key).delete(timeout=_TIMEOUT)

    def _failure(self, error: Exception, url: str) -> errors.TransferError | None:
        import requests
        from google.api_core import exceptions
        from google.auth import exceptions as auth
        from google.cloud.storage import exceptions as media

        match error:
            case auth.TransportError():
                return errors.TransferError(f"{url}: Google's credentials could not be had: {error}", transient=True)
            case auth.GoogleAuthError():
                remedy = "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS"
                return errors.AccessRefusedError(f"{url}: no credentials of Google that work ({error}); {remedy}")
            case media.DataCorruption():
                return errors.TransferCorruptError(f"{url}: what arrived is not what was sent: {error}", transient=True)
            case exceptions.RetryError() | requests.ConnectionError() | requests.Timeout():
                return errors.TransferError(f"{url} cannot be reached: {error}", transient=True)
            case requests.RequestException():
                return errors.TransferError(f"{url}: {error}", transient=True)
            case media.InvalidResponse():
                return self._refusal(int(error.response.status_code), str(error), url)
            case exceptions.GoogleAPICallError():
                return self._refusal(int(error.code or 0), error.message or "", url)
        return None

    def _refusal(self, code: int, text: str, url: str) -> errors.TransferError:
        match code:
            case 401 | 403:
                return errors.AccessRefusedError(
                    f"{url}: access is refused ({code} {text}): may these credentials read, write and delete there?"
                )
            case 404 if "bucket does not exist" in text:
                return self._no_bucket()
            case 400 if "CRC32C" in text or "MD5" in text:
                return errors.TransferCorruptError(f"{url}: what arrived is not what was sent: {text}", transient=True)
            case 404:
                return errors.ObjectNotFoundError(f"there is no {url}")
            case 412:
                return errors.ObjectExistsError(f"{url} is there already")
        kind = errors.StoreBusyError if code in BUSY else errors.TransferError
        return kind(f"{url}: {code} {text}", transient=code in TRANSIENT)

    def _no_bucket(self) -> errors.StoreMissingError:
        return errors.StoreMissingError(f"there is no bucket {self._place}: make it, or mend the address {self.uri}")

    def _connect(self) -> Any:
        return self._library.Client()

    def _bucket(self) -> Any:
        return self._client.bucket(self._place)

    def _blob(self, key: str, **more: Any) -> Any:
        return self._bucket().blob(self._name(key), **more)
