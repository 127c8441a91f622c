"""Local ends of a transfer: source and sink files that report progress."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainables.errors import TransferError
from trainables.store import fs
from trainables.transfer.backend import Progress, unwatched


class Source:
    """A local file that is being sent: what is read of it counts as moved, and its end stays where it was."""

    def __init__(self, path: Path, progress: Progress = unwatched) -> None:
        self.path = path
        self.name = os.fspath(path)
        self._progress = progress

    def __enter__(self) -> Source:
        with on_disk(self.path):
            self._file = open(self.path, "rb", buffering=0)
            self.size = os.fstat(self._file.fileno()).st_size
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def read(self, count: int | None = -1) -> bytes:
        left = self.size - self._file.tell()
        wanted = left if count is None or count < 0 else min(count, left)
        data = self.peek(wanted)
        if data:
            self._progress(len(data))
        return data

    def peek(self, count: int) -> bytes:
        """Read on without telling anybody."""
        with on_disk(self.path):
            parts = []
            while count and (part := self._file.read(count)):
                parts.append(part)
                count -= len(part)
        if count:
            raise TransferError(f"{self.path} was shortened while it was being sent", transient=True)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_at(self, buffer: bytearray | memoryview, offset: int) -> None:
        """Fill a buffer from there on, from any thread, without telling anybody."""
        view = memoryview(buffer)
        with on_disk(self.path):
            while view and (count := os.preadv(self._file.fileno(), [view], offset)):
                view, offset = view[count:], offset + count
        if view:
            raise TransferError(f"{self.path} was shortened while it was being sent", transient=True)

    def moved(self, count: int) -> None:
        """Tell of bytes that have moved."""
        self._progress(count)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            return self._file.seek(self.size + offset)
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True


class Sink:
    """A local file that is being fetched: what is written to it counts as moved."""

    def __init__(self, path: Path, progress: Progress = unwatched) -> None:
        self.path = path
        self._progress = progress

    def __enter__(self) -> Sink:
        with on_disk(self.path):
            self._fd = fs.create(self.path, exclusive=True)
        return self

    def __exit__(self, *error: object) -> None:
        fs.close(self._fd)

    def write(self, data: bytes | memoryview) -> int:
        with on_disk(self.path):
            fs.write(self._fd, data)
        self._progress(len(data))
        return len(data)

    def write_at(self, data: bytes, offset: int) -> None:
        """Write there, from any thread."""
        view = memoryview(data)
        with on_disk(self.path):
            while view:
                count = os.pwrite(self._fd, view, offset)
                view, offset = view[count:], offset + count
        self._progress(len(data))

    def tell(self) -> int:
        return os.lseek(self._fd, 0, os.SEEK_CUR)

    def flush(self) -> None:
        """Nothing is held back."""

    def seekable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True


@contextmanager
def on_disk(path: Path) -> Iterator[None]:
    """Turn what this host's disk says about `path` into a TransferError; trying again does not help."""
    try:
        yield
    except TransferError:
        raise
    except OSError as error:
        text = f"{path}: {error.strerror or error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            text += f"; {fs.free_bytes(path)} bytes are free there"
        raise TransferError(text) from error
