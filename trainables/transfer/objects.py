"""Base of the back ends that move one file at a time: names, order, threads, errors."""

from __future__ import annotations

import re
import secrets
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from contextlib import contextmanager
from pathlib import Path

from trainables.errors import ObjectNotFoundError, TransferError
from trainables.store import fs
from trainables.threads import Threads
from trainables.transfer.backend import (
    Backend,
    Entry,
    Names,
    Progress,
    PushRequest,
    Receipts,
    check_name,
    checked_key,
    joined,
    unwatched,
)
from trainables.transfer.deadline import within
from trainables.transfer.local_files import Sink, Source, on_disk

_TRICKY = re.compile(r"[\x00-\x1f\x7f\\]|\.(?=/|$)|%(?=[0-9A-F]{2})")
_ESCAPED = re.compile(r"%([0-9A-F]{2})")


class ObjectBackend(Backend):
    """A place where each file is sent, fetched, copied and removed on its own."""

    threads = 8
    """Files that move at once."""

    # --- what a place must be able to do -------------------------------------------------------------------

    @abstractmethod
    def _send(self, source: Source, key: str, *, exclusive: bool) -> str:
        """Write a file and check what arrived; return its remote checksum, "" when there is none."""

    @abstractmethod
    def _receive(self, key: str, sink: Sink) -> None:
        """Read a file."""

    @abstractmethod
    def _copy(self, known: str, key: str, *, exclusive: bool) -> str:
        """Copy a file remotely; return its checksum. Raises ObjectNotFoundError when `known` is gone."""

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

    def _push(self, request: PushRequest) -> None:
        if request.exclusive and not self.can.exclusive:
            raise TransferError(f"{self.uri}: nothing can be created exclusively there")
        targets = request.keys()
        known = request.same if self.can.reuse else {}

        def one(name: str) -> None:
            key = targets[name]
            receipt = None
            with self._saying(key):
                if name in known:
                    receipt = self._copied(known[name], key, exclusive=request.exclusive)
                if receipt is None:
                    with Source(request.source / name, _stoppable(request.progress)) as file:
                        receipt = self._send(file, key, exclusive=request.exclusive)
            request.receipts[name] = receipt

        self._each(one, list(targets))
        with self._saying(request.prefix):
            self._settle(list(targets.values()))

    def fetch(self, prefix: str, target: Path, names: Names = None, *, progress: Progress = unwatched) -> None:
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

    def _copy_all(self, keys: Mapping[str, tuple[str, str]], receipts: Receipts, progress: Progress) -> None:
        def one(name: str) -> None:
            _stoppable(progress)(0)  # nothing moves here; who watches may stop it, and hears that it goes on
            known, target = keys[name]
            with self._saying(known):
                receipts[name] = self._copy(known, target, exclusive=False)

        self._each(one, list(keys))
        with self._saying(""):
            self._settle([target for _, target in keys.values()])

    def list(self, prefix: str = "") -> Iterator[Entry]:
        with self._saying(prefix):
            yield from self._walk(f"{checked_key(prefix)}/" if prefix else "")

    def exists(self, key: str) -> bool:
        with self._saying(key):
            return self._size(checked_key(key)) is not None

    def delete(self, keys: Sequence[str]) -> None:
        for key in [checked_key(key) for key in keys]:  # one by one: the order is what others rely on
            self._delete_one(key)

    def _delete_tree(self, prefix: str) -> None:
        self._each(self._delete_one, [entry.key for entry in self.list(prefix)])

    def _delete_one(self, key: str) -> None:
        with self._saying(key):
            self._remove(key)

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


def escaped(key: str) -> str:
    """A key as an object's name: line breaks, backslashes and closing dots, which some stores refuse or change, as %0A.

    >>> escaped("a\\n./50%, not %0A"), unescaped(escaped("a\\n./50%, not %0A"))
    ('a%0A%2E/50%, not %250A', 'a\\n./50%, not %0A')
    """
    return _TRICKY.sub(lambda match: f"%{ord(match[0]):02X}", key)


def unescaped(name: str) -> str:
    """The key of an object's name."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), name)


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
