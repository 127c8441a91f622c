"""Making a journal durable beside the loop: one fdatasync for everything that was written before it began."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from trainables.starting import start_thread
from trainables.store import fs


class GroupSync:
    """A thread that syncs one open file on request. `durable` says how far the journal is on the disk."""

    def __init__(self, *, durable: int, on_durable: Callable[[], None], threaded: bool) -> None:
        self.durable = durable
        self.error: Exception | None = None
        """Why syncing has ended for good: after a failed fsync nobody knows what is on the disk."""
        self._flushed = durable
        self._fd = -1
        self._unnamed: Path | None = None
        """The directory of the file, as long as the file's name is not durable."""
        self._lock = threading.Lock()
        """Held while the descriptor is in use, so that it is not closed under the thread."""
        self._on_durable = on_durable
        self._threaded = threaded
        self._thread: threading.Thread | None = None
        self._requests: SimpleQueue[bool] = SimpleQueue()
        self._asked = False

    def opened(self, fd: int, path: Path) -> None:
        """From now on that new file is meant; the one before it is durable."""
        with self._lock:
            self._fd, self._unnamed = fd, path.parent

    def closed(self) -> None:
        """No file is meant."""
        with self._lock:
            self._fd, self._unnamed = -1, None

    def wrote(self, seq: int) -> None:
        """Facts up to `seq` were handed to the system."""
        self._flushed = seq

    def request(self) -> None:
        """Make what was written durable; in threaded mode soon, and without waiting."""
        if self._flushed <= self.durable or self._asked:
            return
        if not self._threaded:
            self.now()
            return
        self._asked = True
        if self._thread is None:
            self._thread = start_thread(self._run, name="journal-sync")
        self._requests.put(True)

    def now(self) -> None:
        """The same at once, on this thread. Raises OSError."""
        with self._lock:
            flushed = self._flushed
            if self._fd >= 0 and flushed > self.durable:
                try:
                    fs.fdatasync(self._fd)
                    if self._unnamed is not None:
                        fs.fsync_dir(self._unnamed)  # what is in a file is as durable as its name
                        self._unnamed = None
                except OSError as error:
                    self.error = error
                    raise
            self.durable = max(self.durable, flushed)

    def close(self) -> None:
        """End the thread. What was not synced stays so."""
        if self._thread is not None:
            self._requests.put(False)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while self._requests.get():
            self._asked = False  # before the look at what was written: a later request asks again
            before = self.durable
            try:
                self.now()
                if self.durable > before:
                    self._on_durable()
            except Exception as error:  # raised on the loop's thread, at its next flush
                self.error = error
                self._on_durable()
                return
