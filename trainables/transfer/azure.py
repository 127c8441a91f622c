"""Back end for Azure Blob Storage: `az://container/path`, `abfs://container@account.dfs.core.windows.net/path`.

The account and its credentials come from `AZURE_STORAGE_*`, as adlfs has them, else from Azure's default credential.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Iterator
from typing import Any

from trainables import errors, knobs
from trainables.extras import how_to_install
from trainables.transfer.clouds import BUSY, TRANSIENT, CloudBackend
from trainables.transfer.local_files import Sink, Source

_BLOCK = 8 * 1024 * 1024
_BLOCKS_AT_ONCE = 4
_TIMEOUTS = {"connection_timeout": 10, "read_timeout": 60}
"""Seconds until there is a connection, and between two bytes of an answer."""
_MARK = "writer"
_EXISTS = {"BlobAlreadyExists", "ConditionNotMet", "TargetConditionNotMet"}


class AzureBackend(CloudBackend):
    """Blobs under a prefix of a container.

    The MD5 of every block is checked by the service when it arrives, and that of the whole is kept with the blob and
    checked by a fetch.

    Args:
        uri: `az://container/path`; an account in it counts more than the environment's.
        patient: repeat a request that failed in passing.
    """

    needs = ("azure.storage.blob", "azure-storage-blob", "azure")

    def __init__(self, uri: str, *, patient: bool = True) -> None:
        super().__init__(uri, patient=patient)
        self._container_name, _, self._host = self._place.partition("@")

    def _send(self, source: Source, key: str, *, exclusive: bool) -> str:
        md5 = _md5(source)
        blob = self._blob(key)
        mark = secrets.token_hex(16)
        settings = self._library.ContentSettings(content_type="application/octet-stream", content_md5=bytearray(md5))
        try:
            answer = blob.upload_blob(
                source,
                length=source.size,
                overwrite=not exclusive,
                content_settings=settings,
                metadata={_MARK: mark},
                validate_content=True,
                max_concurrency=_BLOCKS_AT_ONCE,
            )
        except Exception as error:
            if not exclusive or not isinstance(self._failure(error, ""), errors.ObjectExistsError):
                raise
            if blob.get_blob_properties().metadata.get(_MARK) != mark:
                raise
            answer = {}  # it was ours: the answer was lost and the library asked again
        computed = answer.get("content_md5")
        if source.size > _BLOCK or not answer:  # came in blocks: the answer tells the MD5 of their list
            found = blob.get_blob_properties()
            computed = found.content_settings.content_md5
            if found.size != source.size:
                raise errors.TransferCorruptError(f"{self.url(key)} has {found.size} bytes, sent were {source.size}")
        if bytes(computed or b"") != md5:
            raise errors.TransferCorruptError(f"{self.url(key)} has another MD5 than what was sent", transient=True)
        return f"md5:{md5.hex()}"

    def _receive(self, key: str, sink: Sink) -> None:
        stream = self._blob(key).download_blob()
        hasher = hashlib.md5(usedforsecurity=False)
        for chunk in stream.chunks():
            hasher.update(chunk)
            sink.write(chunk)
        expected = stream.properties.content_settings.content_md5
        if expected and bytes(expected) != hasher.digest():
            raise errors.TransferCorruptError(f"{self.url(key)} has another MD5 than what arrived", transient=True)

    def _copy(self, known: str, key: str, *, exclusive: bool) -> str:
        from azure.core import MatchConditions

        blob = self._blob(key)
        condition = {"match_condition": MatchConditions.IfMissing} if exclusive else {}
        status = blob.start_copy_from_url(self._blob(known).url, **condition)["copy_status"]
        wait = 0.05
        while status == "pending":  # within an account it is done at once, between two the service takes its time
            time.sleep(wait)
            wait = min(2 * wait, 5.0)
            status = blob.get_blob_properties().copy.status
        if status != "success":
            raise errors.TransferError(f"{self.url(known)} could not be copied to {key}: {status}", transient=True)
        md5 = blob.get_blob_properties().content_settings.content_md5
        return f"md5:{bytes(md5).hex()}" if md5 else ""

    def _size(self, key: str) -> int | None:
        from azure.core.exceptions import ResourceNotFoundError

        try:
            return int(self._blob(key).get_blob_properties().size)
        except ResourceNotFoundError as error:
            if _code(error) == "ContainerNotFound":
                raise
            return None

    def _objects(self, above: str) -> Iterator[tuple[str, int]]:
        for blob in self._client.list_blobs(name_starts_with=above or None, include=["metadata"]):
            if (blob.metadata or {}).get("hdi_isfolder") != "true":  # directories of a hierarchical account
                yield blob.name, blob.size

    def _level(self, above: str) -> Iterator[str]:
        return (item.name for item in self._client.walk_blobs(name_starts_with=above or None, delimiter="/"))

    def _remove(self, key: str) -> None:
        from azure.core.exceptions import ResourceNotFoundError

        try:
            self._blob(key).delete_blob(delete_snapshots="include")
        except ResourceNotFoundError as error:
            if _code(error) == "ContainerNotFound":
                raise

    def _failure(self, error: Exception, url: str) -> errors.TransferError | None:
        from azure.core import exceptions

        if not isinstance(error, exceptions.AzureError):
            return None
        text = str(error.message).partition("\n")[0]
        code = _code(error)
        status = getattr(error, "status_code", None)
        if code in ("ContainerNotFound", "ContainerBeingDeleted", "ContainerDisabled"):
            return errors.StoreMissingError(
                f"there is no container {self._container_name}: make it, or mend the address {url}"
            )
        if code in _EXISTS or isinstance(error, exceptions.ResourceExistsError):
            return errors.ObjectExistsError(f"{url} is there already")
        if isinstance(error, exceptions.ClientAuthenticationError) or status in (401, 403):
            return errors.AccessRefusedError(
                f"{url}: access is refused ({text}): may the credentials in AZURE_STORAGE_*, or of `az login`, "
                "read, write and delete there?"
            )
        if status == 404:
            return errors.ObjectNotFoundError(f"there is no {url}")
        if status == 400 and "md5" in f"{code} {text}".lower():  # of an emulator the code does not tell
            return errors.TransferCorruptError(f"{url}: what arrived is not what was sent", transient=True)
        if isinstance(error, exceptions.ServiceRequestError | exceptions.ServiceResponseError):
            return errors.TransferError(f"{url} cannot be reached: {text}", transient=True)
        kind = errors.StoreBusyError if status in BUSY else errors.TransferError
        return kind(f"{url}: {text}", transient=status in TRANSIENT)

    def _connect(self) -> Any:
        return self._service().get_container_client(self._container_name)

    def _service(self) -> Any:
        retries = self._library.ExponentialRetry(
            initial_backoff=1, increment_base=2, retry_total=4 if self._patient else 0
        )
        options: dict[str, Any] = {
            "retry_policy": retries,
            "max_single_put_size": _BLOCK,
            "max_block_size": _BLOCK,
            **_TIMEOUTS,
        }
        said = knobs.azure_storage()
        if "connection_string" in said and not self._host:
            try:
                return self._library.BlobServiceClient.from_connection_string(said["connection_string"], **options)
            except (KeyError, ValueError):
                raise errors.AccessRefusedError(
                    f"{self.uri}: what AZURE_STORAGE_CONNECTION_STRING has is no connection string; it is written "
                    "AccountName=...;AccountKey=...;EndpointSuffix=core.windows.net"
                ) from None  # it may show a part of it
        host = self._host.replace(".dfs.", ".blob.") or f"{said.get('account_name', '')}.blob.core.windows.net"
        if host.startswith("."):
            raise errors.AccessRefusedError(
                f"{self.uri} does not say whose it is: set AZURE_STORAGE_ACCOUNT_NAME or "
                "AZURE_STORAGE_CONNECTION_STRING, or write abfs://container@account.dfs.core.windows.net/path"
            )
        credential = said.get("account_key") or said.get("sas_token") or self._identity(said)
        return self._library.BlobServiceClient(f"https://{host}", credential=credential, **options)

    def _identity(self, said: dict[str, str]) -> Any:
        try:
            from azure.identity import ClientSecretCredential, DefaultAzureCredential
        except ImportError as error:
            raise errors.MissingExtraError(f"{self.uri} needs azure-identity: {how_to_install('azure')}") from error
        if {"tenant_id", "client_id", "client_secret"} <= set(said):
            return ClientSecretCredential(said["tenant_id"], said["client_id"], said["client_secret"])
        return DefaultAzureCredential()

    def _blob(self, key: str) -> Any:
        return self._client.get_blob_client(self._name(key))


def _code(error: Exception) -> str:
    """The service's word for what is wrong; only answers of the service have one."""
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code) or "")  # an Enum where the library knows it


def _md5(source: Source) -> bytes:
    hasher, left = hashlib.md5(usedforsecurity=False), source.size
    while left:
        data = source.peek(min(left, _BLOCK))
        hasher.update(data)
        left -= len(data)
    source.seek(0)
    return hasher.digest()
