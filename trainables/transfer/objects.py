"""What back ends have in common that move one file at a time: names, order, threads, and what raises."""

from __future__ import annotations

import errno
import os
import re
import secrets
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from trainables.errors import ObjectNotFoundError, TransferError
from trainables.starting import start_thread
from trainables.store import fs
from trainables.threads import Threads
from trainables.transfer.base import Backend, Entry, Progress, check_name, checked_key, joined, unwatched

T = TypeVar("T")

BUSY = {429, 502, 503, 504}
"""Statuses of HTTP with which an overloaded server sends everybody away for a while."""

_TRICKY = re.compile(r"[\x00-\x1f\x7f\\]|\.(?=/|$)|%(?=[0-9A-F]{2})")
_ESCAPED = re.compile(r"%([0-9A-F]{2})")


class ObjectBackend(Backend):
    """A place where each file is sent, fetched, copied and removed on its own."""

    threads = 8
    """Files that move at once."""

    # --- what a place must be able to do -------------------------------------------------------------------

    @abstractmethod
    def _send(self, source: Source, key: str, *, exclusive: bool) -> str:
        """Write a file and check what arrived; return its checksum over there, "" when there is none."""

    @abstractmethod
    def _receive(self, key: str, sink: Sink) -> None:
        """Read a file."""

    @abstractmethod
    def _copy(self, known: str, key: str, *, exclusive: bool) -> str:
        """Copy a file over there; return its checksum. Raises ObjectNotFoundError when `known` is gone."""

    @abstractmethod
    def _size(self, key: str) -> int | None:
        """Bytes of a file; None when it is not there."""

    @abstractmethod
    def _walk(self, prefix: str) -> Iterator[Entry]:
        """Every file whose key starts with `prefix`, which is empty or ends in a slash."""

    @abstractmethod
    def _remove(self, key: str) -> None:
        """Remove a file; absent is no error."""

    @abstractmethod
    def _failure(self, error: Exception, url: str) -> TransferError | None:
        """What an error of the library means; None when it is not one of the library's."""

    def _prober(self) -> ObjectBackend:
        """What `check` asks: the same place, without tries that would only take the time to tell the cause."""
        return self

    def _settle(self, keys: Sequence[str]) -> None:
        """Make durable what `_send` and `_copy` wrote."""

    # --- what follows from it ------------------------------------------------------------------------------

    def check(self, timeout_s: float = 10.0) -> None:
        key = check_name()
        prober = self._prober()

        def look() -> None:
            try:
                prober.put(key, b"can this be written?")
                prober.delete([key])
            finally:
                if prober is not self:
                    prober.close()

        within(timeout_s, look, self.uri)

    def push(
        self,
        source: Path,
        prefix: str,
        names: Sequence[str],
        *,
        same: Mapping[str, str] | None = None,
        exclusive: bool = False,
        receipts: MutableMapping[str, str] | None = None,
        progress: Progress = unwatched,
    ) -> None:
        if exclusive and not self.can.exclusive:
            raise TransferError(f"{self.uri}: nothing can be created exclusively there")
        targets = {name: joined(prefix, name) for name in names}
        known = same if same is not None and self.can.reuse else {}

        def one(name: str) -> None:
            key = targets[name]
            receipt = None
            with self._saying(key):
                if name in known:
                    receipt = self._copied(known[name], key, exclusive=exclusive)
                if receipt is None:
                    with Source(source / name, _stoppable(progress)) as file:
                        receipt = self._send(file, key, exclusive=exclusive)
            if receipts is not None:
                receipts[name] = receipt

        self._each(one, list(targets))
        with self._saying(prefix):
            self._settle(list(targets.values()))

    def fetch(
        self, prefix: str, target: Path, names: Sequence[str] | None = None, *, progress: Progress = unwatched
    ) -> None:
        if names is None:
            names = self._names(checked_key(prefix) if prefix else "")
        sources = {name: joined(prefix, name) for name in names}

        def one(name: str) -> None:
            path = target / name
            part = path.with_name(f".fetch-{secrets.token_hex(8)}")
            try:
                with on_disk(path):
                    fs.make_dirs(path.parent)
                with self._saying(sources[name]), Sink(part, _stoppable(progress)) as sink:
                    self._receive(sources[name], sink)
                with on_disk(path):
                    fs.rename(part, path)
            except BaseException:
                fs.remove_quietly(part)
                raise

        self._each(one, list(sources))

    def copy(
        self,
        source: str,
        prefix: str,
        names: Sequence[str],
        *,
        receipts: MutableMapping[str, str] | None = None,
        progress: Progress = unwatched,
    ) -> None:
        if not self.can.copy:
            super().copy(source, prefix, names, receipts=receipts, progress=progress)
            return
        known = {name: joined(source, name) for name in names}
        targets = {name: joined(prefix, name) for name in names}

        def one(name: str) -> None:
            _stoppable(progress)(0)  # nothing moves here; who watches may stop it, and hears that it goes on
            with self._saying(known[name]):
                receipt = self._copy(known[name], targets[name], exclusive=False)
            if receipts is not None:
                receipts[name] = receipt

        self._each(one, list(targets))
        with self._saying(prefix):
            self._settle(list(targets.values()))

    def list(self, prefix: str = "") -> Iterator[Entry]:
        with self._saying(prefix):
            yield from self._walk(f"{checked_key(prefix)}/" if prefix else "")

    def exists(self, key: str) -> bool:
        with self._saying(key):
            return self._size(checked_key(key)) is not None

    def delete(self, keys: Sequence[str]) -> None:
        for key in [checked_key(key) for key in keys]:  # one by one: the order is what others rely on
            with self._saying(key):
                self._remove(key)

    def delete_tree(self, prefix: str) -> None:
        if not prefix:
            raise ValueError("an empty prefix is the whole place")

        def one(key: str) -> None:
            with self._saying(key):
                self._remove(key)

        self._each(one, [entry.key for entry in self.list(prefix)])

    def _copied(self, known: str, key: str, *, exclusive: bool) -> str | None:
        try:
            return self._copy(known, key, exclusive=exclusive)
        except ObjectNotFoundError:
            return None
        except Exception as error:
            if isinstance(self._failure(error, self.url(known)), ObjectNotFoundError):
                return None
            raise

    def _names(self, prefix: str) -> Sequence[str]:
        """Everything under a prefix, relative to it."""
        skip = len(prefix) + 1 if prefix else 0
        names = [entry.key[skip:] for entry in self.list(prefix)]
        if not names:
            raise ObjectNotFoundError(f"there is nothing at {self.url(prefix)}")
        return names

    def _each(self, work: Callable[[str], None], items: Sequence[str]) -> None:
        """Do the work for every item, several at once; the first error ends it."""
        try:
            if len(items) < 2:
                for item in items:
                    work(item)
                return
            with Threads(min(self.threads, len(items)), thread_name_prefix="transfer") as pool:
                futures = [pool.submit(work, item) for item in items]
                try:
                    done, _ = wait(futures, return_when=FIRST_EXCEPTION)
                    for future in done:
                        future.result()
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
        except _Stopped as stopped:
            raise stopped.cause from None

    @contextmanager
    def _saying(self, key: str) -> Iterator[None]:
        """Turn what the library raises into our errors."""
        try:
            yield
        except TransferError:
            raise
        except Exception as error:
            failure = self._failure(error, self.url(key))
            if failure is None:
                raise
            raise failure from error


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
        return (
            self._file.seek(self.size + offset, os.SEEK_SET)
            if whence == os.SEEK_END
            else self._file.seek(offset, whence)
        )

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

    def restart(self) -> None:
        """Forget what was written."""
        with on_disk(self.path):
            fs.truncate(self.path, 0)
            os.lseek(self._fd, 0, os.SEEK_SET)

    def tell(self) -> int:
        return os.lseek(self._fd, 0, os.SEEK_CUR)

    def flush(self) -> None:
        """Nothing is held back."""

    def seekable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True


# --- names -------------------------------------------------------------------------------------------------


def escaped(key: str) -> str:
    """A key as an object's name: line breaks, backslashes and closing dots, which some stores refuse or change, as %0A.

    >>> escaped("a\\n./50%, not %0A"), unescaped(escaped("a\\n./50%, not %0A"))
    ('a%0A%2E/50%, not %250A', 'a\\n./50%, not %0A')
    """
    return _TRICKY.sub(lambda match: f"%{ord(match[0]):02X}", key)


def unescaped(name: str) -> str:
    """The key of an object's name."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), name)


# --- what raises -------------------------------------------------------------------------------------------


class _Stopped(BaseException):
    """Carries what a progress raised past libraries that retry, or swallow, exceptions."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(cause)
        self.cause = cause


def _stoppable(progress: Progress) -> Progress:
    def told(moved: int) -> None:
        try:
            progress(moved)
        except BaseException as error:
            raise _Stopped(error) from error

    return told


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


def within(seconds: float, call: Callable[[], T], uri: str) -> T:
    """What `call` returns or raises; TransferError when it has not ended after so many seconds.

    The thread that it runs in is left to itself then: nothing can end what waits inside a library.
    """
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((call(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = start_thread(run, name="transfer-check")
    thread.join(seconds)
    if not outcome:
        raise TransferError(
            f"{uri} did not answer within {seconds:g} s: look at the address, the network and the proxy", transient=True
        )
    result, error = outcome[0]
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]
