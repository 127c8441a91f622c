"""What the processes that watch ranks wait for: descriptors with a handler each, a deadline, and to be woken."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable, Collection

from trainables.automatic import TimeSource


class EventLoop:
    """Calls the handlers of what is ready. `wake` may be called from any thread and from signal handlers, also late."""

    def __init__(self, clock: TimeSource, woken: Callable[[], None]) -> None:
        self._clock, self._woken = clock, woken
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._due: float | None = None
        self._waking = threading.RLock()  # a signal handler may wake while its own thread does
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.watch(self._wakeup, self._hear)

    def watch(self, fd: int, handler: Callable[[], None]) -> None:
        """Have `handler` called each time when that descriptor has something to read."""
        self._handlers[fd] = handler
        self._poll.register(fd, select.POLLIN)

    def forget(self, fd: int) -> None:
        """Watch it no more; one that is not watched is no error."""
        if self._handlers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    @property
    def has_deadline(self) -> bool:
        return self._due is not None

    def due_in(self, seconds: float | None) -> None:
        """Wait no longer than that from now on; None: as long as it takes."""
        self._due = None if seconds is None else self._clock.monotonic() + seconds

    def serve(self, last: Collection[int] = ()) -> bool:
        """Wait until something happens, and deal with it, with the descriptors `last` after the others.

        False: nothing has until the deadline.
        """
        timeout = None if self._due is None else max(0.0, self._due - self._clock.monotonic()) * 1000
        ready = [fd for fd, _ in self._poll.poll(timeout)]
        for fd in sorted(ready, key=lambda fd: fd in last):
            if fd in self._handlers:
                self._handlers[fd]()
        return bool(ready) or self._due is None

    def wake(self) -> None:
        """Have `woken` called soon, in the thread that serves."""
        with self._waking:
            if self._wakeup >= 0:
                os.eventfd_write(self._wakeup, 1)

    def close(self) -> None:
        """Whoever still wakes does nothing: the number of the descriptor will be another's."""
        with self._waking:
            os.close(self._wakeup)
            self._wakeup = -1

    def _hear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wakeup)
        self._woken()
