"""Back end for fsspec file systems: `sftp://`, `hdfs://`, `webdav://`, ..., and `memory://` for tests.

Of a filesystem that is only known by its name little can be taken for granted: sizes are compared, nothing is created
exclusively, and content is copied remotely where the filesystem says that it can.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from trainables import errors
from trainables.extras import how_to_install
from trainables.places import trim_slash
from trainables.transfer.backend import Can, Entry
from trainables.transfer.local_files import Sink, Source, on_disk
from trainables.transfer.objects import ObjectBackend, escaped, unescaped

_BLOCK = 4 * 1024 * 1024


class FsspecBackend(ObjectBackend):
    """Files under a path of a filesystem of fsspec's.

    Args:
        uri: as fsspec has it. Options come from fsspec's own configuration (`FSSPEC_<PROTOCOL>_<OPTION>`).
        shown: how it is written in messages, without passwords.
    """

    threads = 4

    def __init__(self, uri: str, *, shown: str | None = None) -> None:
        super().__init__(trim_slash(shown or uri))
        self._address = uri
        self._lock = threading.Lock()
        self._fs, self._root = self._connect()
        copies = _copies(self._fs)
        self.can = Can(verify=False, exclusive=False, reuse=copies, copy=copies)

    def renew(self) -> None:
        with self._lock:
            self._fs, self._root = self._connect()

    def _connect(self) -> tuple[Any, str]:
        try:
            import fsspec
        except ImportError as error:
            raise errors.MissingExtraError(f"{self.uri} needs fsspec: {how_to_install('fsspec')}") from error
        try:
            filesystem, root = fsspec.url_to_fs(self._address, skip_instance_cache=True, use_listings_cache=False)
        except ImportError as error:  # fsspec names the package that is missing
            raise errors.MissingExtraError(f"{self.uri}: {error}") from error
        except (OSError, ValueError) as error:
            if isinstance(error, ValueError) and self.uri != self._address.rstrip("/"):
                raise errors.TransferError(
                    f"{self.uri} cannot be opened: its address cannot be read. In a user's name and password / is "
                    "written %2F, ? %3F, # %23, @ %40, : %3A and [ %5B"
                ) from None  # it may show a part of the password
            raise errors.TransferError(
                f"{self.uri} cannot be opened: {error}", transient=isinstance(error, OSError)
            ) from error
        if "?" in root:
            raise errors.InvalidAddressError(
                f"{self.uri}: the query of the address is not accepted: this filesystem of fsspec's reads none; its "
                f"options come from FSSPEC_<PROTOCOL>_<OPTION>"
            )
        return filesystem, root.rstrip("/")

    def _send(self, source: Source, key: str, *, exclusive: bool) -> str:
        path = self._path(key)
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        with self._fs.open(path, "wb") as file:
            while data := source.read(_BLOCK):
                file.write(data)
        self._check_size(key, source.size)
        return ""

    def _receive(self, key: str, sink: Sink) -> None:
        with self._fs.open(self._path(key), "rb") as file:
            while data := file.read(_BLOCK):
                sink.write(data)

    def _copy(self, known: str, key: str, *, exclusive: bool) -> str:
        size = self._size(known)
        if size is None:
            raise errors.ObjectNotFoundError(f"there is no {self.url(known)}")
        path = self._path(key)
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._fs.cp_file(self._path(known), path)
        self._check_size(key, size)
        return ""

    def _size(self, key: str) -> int | None:
        try:
            found = self._fs.info(self._path(key))
        except FileNotFoundError:
            return None
        return int(found["size"]) if found["type"] == "file" else None

    def _walk(self, prefix: str) -> Iterator[Entry]:
        self._fs.invalidate_cache()
        path = self._path(prefix.rstrip("/")) if prefix else self._root
        for name, found in sorted(self._fs.find(path, detail=True).items()):
            key = unescaped(name[len(self._root) + 1 :])
            if found["type"] == "file" and key.startswith(prefix):
                yield Entry(key, int(found["size"]))

    def _remove(self, key: str) -> None:
        with suppress(FileNotFoundError):
            self._fs.rm_file(self._path(key))

    def _failure(self, error: Exception, url: str) -> errors.TransferError | None:
        match error:
            case FileNotFoundError() | NotADirectoryError() | IsADirectoryError():
                return errors.ObjectNotFoundError(f"there is no {url}")
            case FileExistsError():
                return errors.ObjectExistsError(f"{url} is there already")
            case PermissionError():
                return errors.AccessRefusedError(f"{url}: access is refused: {error}")
            case NotImplementedError():
                return errors.TransferError(f"{url}: {type(self._fs).__name__} cannot do that")
        # hundreds of filesystems raise as they like; what is taken for passing is tried again, and named at the end
        return errors.TransferError(
            f"{url}: {type(error).__name__}: {error}", transient=not isinstance(error, ValueError)
        )

    def _check_size(self, key: str, size: int) -> None:
        found = self._size(key)
        if found != size:
            raise errors.TransferCorruptError(f"{self.url(key)} has {found} bytes, sent were {size}", transient=True)

    def _path(self, key: str) -> str:
        return f"{self._root}/{escaped(key)}"


class MemoryBackend(FsspecBackend):
    """`memory://`: files of this process, for tests and for what runs in one process."""

    _creating = threading.Lock()

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.can = replace(self.can, exclusive=True, verify=True)

    def _send(self, source: Source, key: str, *, exclusive: bool) -> str:
        data, path = source.read(), self._path(key)
        with self._creating:
            if exclusive and self._fs.isfile(path):
                raise FileExistsError(path)
            self._fs.pipe_file(path, data)
            if self._fs.cat_file(path) != data:
                raise errors.TransferCorruptError(f"{self.url(key)} is not what was sent")
        return ""

    def _receive(self, key: str, sink: Sink) -> None:
        with self._creating:
            data = self._fs.cat_file(self._path(key))
        with on_disk(sink.path):
            sink.write(data)

    def _copy(self, known: str, key: str, *, exclusive: bool) -> str:
        with self._creating:
            if exclusive and self._fs.isfile(self._path(key)):
                raise FileExistsError(key)
            self._fs.pipe_file(self._path(key), self._fs.cat_file(self._path(known)))
        return ""


def _copies(filesystem: Any) -> bool:
    """Whether it has a copy of its own: fsspec's base only says that there is none."""
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem

    kind = type(filesystem)
    if isinstance(filesystem, AsyncFileSystem):
        return kind._cp_file is not AsyncFileSystem._cp_file
    return bool(kind.cp_file is not AbstractFileSystem.cp_file)
