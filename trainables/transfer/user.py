"""`Syncer`, the interface for users' own sync code (Ray's methods), and the back end around it."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

from trainables.errors import InvalidSettingError, TransferError
from trainables.transfer.backend import Can, checked_key
from trainables.transfer.copying import CopyingBackend
from trainables.transfer.deadline import within

_logger = logging.getLogger(__name__)


class Syncer(ABC):
    """Copies directories to a place and back, for whoever has a way of his own.

    `sync_up`, `sync_down` and `delete` may start something in the background: then `wait` waits for it and raises what
    went wrong, and `retry` starts the last one again. What they copy is contents: the files of `local_dir`, at any
    depth, are those of `remote_dir` afterwards; what else is there stays. `check_syncer` of
    `trainables.testing.syncers` tells whether a Syncer does all that.

    Args:
        sync_period: seconds between two copies for `sync_up_if_needed` and `sync_down_if_needed`.
    """

    def __init__(self, sync_period: float = 300.0) -> None:
        self.sync_period = sync_period
        self.last_sync_up_time = float("-inf")
        self.last_sync_down_time = float("-inf")

    @abstractmethod
    def sync_up(self, local_dir: str, remote_dir: str, exclude: list[str] | None = None) -> bool:
        """Copy the content of `local_dir` into `remote_dir`, but for names that match a pattern of `exclude`.

        Returns:
            Whether it was started, or done; False when another one is still going on.
        """

    @abstractmethod
    def sync_down(self, remote_dir: str, local_dir: str, exclude: list[str] | None = None) -> bool:
        """Copy the content of `remote_dir` into `local_dir`. Returns what `sync_up` does."""

    @abstractmethod
    def delete(self, remote_dir: str) -> bool:
        """Remove `remote_dir` with all that is in it. Returns what `sync_up` does."""

    def retry(self) -> None:
        """Start the last copy or removal again."""

    def wait(self, timeout: float | None = None) -> None:
        """Wait for what was started. Raises what went wrong, TimeoutError after `timeout` seconds."""

    def sync_up_if_needed(self, local_dir: str, remote_dir: str, exclude: list[str] | None = None) -> bool | None:
        """`sync_up`, unless the last one is less than `sync_period` ago; None then."""
        if (now := time.monotonic()) - self.last_sync_up_time < self.sync_period:
            return None
        started = self.sync_up(local_dir=local_dir, remote_dir=remote_dir, exclude=exclude)
        self.last_sync_up_time = now
        return started

    def sync_down_if_needed(self, remote_dir: str, local_dir: str, exclude: list[str] | None = None) -> bool | None:
        """`sync_down`, unless the last one is less than `sync_period` ago; None then."""
        if (now := time.monotonic()) - self.last_sync_down_time < self.sync_period:
            return None
        started = self.sync_down(remote_dir=remote_dir, local_dir=local_dir, exclude=exclude)
        self.last_sync_down_time = now
        return started

    def wait_or_retry(self, max_retries: int = 2, backoff_s: float = 5) -> None:
        """Wait; after an error try again, `max_retries` times: so many and one attempts, each of them awaited.

        Raises:
            TransferError: the last attempt failed too; it is chained.
        """
        if max_retries < 0:
            raise InvalidSettingError(f"wait_or_retry: max_retries={max_retries!r} is none: 0 or more")
        for left in range(max_retries, -1, -1):
            try:
                self.wait()
                return
            except Exception as error:
                if left == 0:
                    raise TransferError(f"copying failed, also after {max_retries} retries: {error!r}") from error
                _logger.warning("copying failed (%r); trying again in %s s, %s times at most", error, backoff_s, left)
            time.sleep(backoff_s)
            self.retry()

    def reset(self) -> None:
        """Forget when the last copies were made."""
        self.last_sync_up_time = float("-inf")
        self.last_sync_down_time = float("-inf")

    def close(self) -> None:
        """Let go of what it holds."""


class SyncerBackend(CopyingBackend):
    """Copies with a user's Syncer: one thing at a time, awaited, and tried again by whoever tries everything again.

    Args:
        syncer: anything with the methods of `Syncer`.
        uri: the place, as the Syncer understands it.

    Raises:
        InvalidSettingError: a method is missing.
    """

    can = Can(list=False, verify=False, exclusive=False, reuse=False, copy=False)

    def __init__(self, syncer: Syncer, uri: str) -> None:
        super().__init__(uri)
        missing = [name for name in ("sync_up", "sync_down", "delete") if not callable(getattr(syncer, name, None))]
        if missing:
            raise InvalidSettingError(
                f"{syncer!r} is no Syncer: it has no {' and no '.join(missing)}. Derive it from tuner.syncer.Syncer"
            )
        self._syncer = syncer
        self._one_at_a_time = threading.Lock()

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._do("delete", self.url(checked_key(key)))

    def renew(self) -> None:
        getattr(self._syncer, "reset", lambda: None)()

    def close(self) -> None:
        getattr(self._syncer, "close", lambda: None)()

    def _upload(self, local: str, remote: str, limit_s: float | None) -> None:
        within(limit_s, lambda: self._do("sync_up", local.rstrip("/"), remote.rstrip("/")), self.uri)

    def _download(self, remote: str, local: str, limit_s: float | None) -> None:
        within(limit_s, lambda: self._do("sync_down", remote.rstrip("/"), local.rstrip("/")), self.uri)

    def _remove(self, key: str, limit_s: float) -> None:
        within(limit_s, lambda: self._do("delete", self.url(key)), self.uri)

    def _do(self, method: str, *directories: str) -> None:
        wait = getattr(self._syncer, "wait", None)
        with self._one_at_a_time:
            try:
                started = getattr(self._syncer, method)(*directories)
                if started is False and wait is not None:  # one is going on that nobody has waited for
                    wait()
                    started = getattr(self._syncer, method)(*directories)
                if started is False:
                    raise TransferError(f"{self.uri}: {method} was not started", transient=True)
                if wait is not None:
                    wait()
            except TransferError:
                raise
            except Exception as error:
                raise TransferError(
                    f"{self.uri}: {method}{directories} of {type(self._syncer).__name__} failed: {error!r}",
                    transient=True,
                ) from error
