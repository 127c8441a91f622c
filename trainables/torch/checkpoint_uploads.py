"""Background uploads of an `AtomicDirectory`'s checkpoints: the latest and the forced ones."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from trainables.errors import CheckpointNotFoundError, ObjectNotFoundError, TrainablesError, TransferError
from trainables.starting import start
from trainables.store import delete
from trainables.sync_config import SyncConfig
from trainables.torch.numbered import Numbered, SaverNames, surplus
from trainables.transfer import remote_checkpoints
from trainables.transfer.backend import Backend
from trainables.transfer.open import open_backend

_log = logging.getLogger(__name__)

_CHECK_S = 60.0
"""Seconds that a place has to answer at the start."""
_RETRY_S = 1.0
"""Seconds before what failed is tried again; twice as long each time, up to `sync_period`."""


class CheckpointUploader:
    """Uploads checkpoints to the place of a `SyncConfig`, in a thread of its own.

    At most every `sync_period` seconds the latest goes there, and each forced one; what a newer one has replaced by
    then does not. The pointer file goes after the checkpoint that it names, and only then are older ones removed there
    by the rule that holds here. What is left goes when the process ends, or at `close`.

    Args:
        config: with `upload_dir`, under which a checkpoint lies by its bare name.
        directory: where the checkpoints are.
        names, keep_last: of the saver.
    """

    def __init__(self, config: SyncConfig, directory: Path, names: SaverNames, *, keep_last: int | None) -> None:
        self._backend: Backend = open_backend(**config.place())
        self._period, self._timeout = config.sync_period, config.sync_timeout
        self._directory, self._names, self._keep_last = directory, names, keep_last
        self._index = remote_checkpoints.ContentIndex()
        self._there: list[Numbered] = []
        self._changed = threading.Condition()
        self._forced: list[Numbered] = []
        self._latest: Numbered | None = None
        self._closing = self._closed = False
        self._process = os.getpid()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"ship-{names.name}", daemon=True)

    def fetch_newer(self, than: int) -> str | None:
        """Fetch the latest remote checkpoint, if its number is above `than`; returns its name.

        Raises TransferError when the place cannot be written to or asked, CheckpointError when what it names is not
        whole there.
        """
        self._backend.check(_CHECK_S)  # now, and not when the first checkpoint is to go
        try:
            name = self._backend.read(self._names.pointer).decode(errors="replace")
        except ObjectNotFoundError:
            return None
        known = self._names.parse(name)
        if known is None or known.index <= than:
            return None
        remote_checkpoints.fetch(self._backend, known.name, self._directory / known.name)
        return known.name

    def start(self, here: list[Numbered]) -> None:
        """Begin; what is here already and not there goes first."""
        if self._backend.can.list:
            known = (self._names.parse(each.key) for each in remote_checkpoints.listed(self._backend, "").complete)
            self._there = [each for each in known if each is not None]
        done = {each.name for each in self._there}
        self._forced = [each for each in here if each.forced and each.name not in done]
        if here and here[-1].name not in done:
            self._latest = here[-1]
        _before_pools_close(self._at_exit)
        start(self._thread)

    def offer(self, checkpoint: Numbered) -> None:
        """There is a new latest one."""
        with self._changed:
            if checkpoint.forced:
                self._forced.append(checkpoint)
            self._latest = checkpoint
            self._changed.notify_all()

    def close(self) -> None:
        """Ship what is left, for at most `sync_timeout` seconds without success.

        Raises TransferError that names what did not arrive.
        """
        if self._closed or os.getpid() != self._process:
            return  # a forked child (a loader's worker) has neither the thread nor the right to the lock
        self._closed = True
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
            self._backend.close()
        left = [each.name for each in self._waiting()]
        if left:
            raise TransferError(
                f"{', '.join(left)} did not arrive at {self._backend.uri}: {self._failure}. Nothing was deleted here; "
                "the next AtomicDirectory on this directory sends what is missing"
            ) from self._failure

    def _run(self) -> None:
        due, pause, failing_since = 0.0, _RETRY_S, None
        while True:
            with self._changed:
                while not (self._closing or (self._waiting() and time.monotonic() >= due)):
                    self._changed.wait(max(0.0, due - time.monotonic()) if self._waiting() else None)
                if not self._waiting():
                    return  # closing, and everything is there
            try:
                self._ship()
            except (TrainablesError, OSError) as error:
                self._failure = error
                now = time.monotonic()
                failing_since = now if failing_since is None else failing_since
                may_pass = isinstance(error, TransferError) and error.transient
                if self._closing and (not may_pass or now - failing_since >= self._timeout):
                    return
                _log.warning("checkpoints could not be copied, will try again: %s", error)
                due, pause = now + pause, min(2 * pause, max(self._period, _RETRY_S))
                if self._closing:
                    with self._changed:
                        self._changed.wait(min(pause, self._timeout))
            else:
                due, pause, failing_since = time.monotonic() + self._period, _RETRY_S, None

    def _ship(self) -> None:
        with self._changed, ExitStack() as held:
            work = self._waiting()
            for each in work:
                held.enter_context(delete.pins.hold(self._directory / each.name))
            still_held = held.pop_all()
        with still_held:
            for each in work:
                self._send(each)

    def _send(self, checkpoint: Numbered) -> None:
        path = self._directory / checkpoint.name
        if checkpoint not in self._there:
            try:
                remote_checkpoints.push_payload(self._backend, path, checkpoint.name, index=self._index)
                remote_checkpoints.push_manifest(self._backend, path, checkpoint.name)
                self._there.append(checkpoint)
            except CheckpointNotFoundError:
                pass  # a newer one is here, and retention was faster
        with self._changed:
            if checkpoint in self._forced:
                self._forced.remove(checkpoint)
            newest = self._latest
        if checkpoint in self._there and checkpoint == max(self._there, key=lambda each: each.index):
            self._backend.put(self._names.pointer, checkpoint.name.encode())
            self._remove_older()
        with self._changed:
            if self._latest == checkpoint == newest:
                self._latest = None

    def _remove_older(self) -> None:
        """Over there, by the rule that holds here; after the newer one and the pointer are there."""
        if not self._backend.can.delete:
            return
        self._there.sort(key=lambda each: each.index)
        for each in surplus(self._there, self._keep_last):
            remote_checkpoints.delete(self._backend, each.name)
            self._index.forget(each.name)
            self._there.remove(each)

    def _waiting(self) -> list[Numbered]:
        """What is to be sent, the oldest first."""
        more = [self._latest] if self._latest is not None and self._latest not in self._forced else []
        return [*self._forced, *more]

    def _at_exit(self) -> None:
        try:
            self.close()
        except TransferError as error:
            _log.error("%s", error)


def _before_pools_close(work: Callable[[], None]) -> None:
    """Have `work` called when the interpreter ends, while back ends can still start threads.

    `atexit` is too late: thread pools are closed before. The hook that they use themselves has no public name; where
    it is gone, `atexit` does for back ends without pools.
    """
    register = getattr(threading, "_register_atexit", None)
    try:
        (register or atexit.register)(work)
    except RuntimeError:
        atexit.register(work)  # the interpreter is ending already
