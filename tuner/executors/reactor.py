"""One wait for everything: descriptors, and what other threads want done. `run_once` of the executors stands on it."""

from __future__ import annotations

import os
import queue
import select
import weakref
from collections.abc import Callable

from tuner.executors.base import Event

Action = Callable[[list[Event]], object]
"""Something to do in the thread that waits; may add events."""


class Reactor:
    """`wake` and `call_soon` are for any thread, and for signal handlers; the rest belongs to the thread that waits."""

    def __init__(self) -> None:
        self._actions: queue.SimpleQueue[Action] = queue.SimpleQueue()
        self._epoll = select.epoll()
        self._woken = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._woken, select.EPOLLIN)
        self._readers: dict[int, Action] = {}
        self._writers: dict[int, Callable[[], None]] = {}
        # Not before, and not at exit either: a late thread would find it closed, or another's file in its place.
        weakref.finalize(self, os.close, self._woken).atexit = False

    def wake(self) -> None:
        """Have `wait` return soon."""
        os.eventfd_write(self._woken, 1)

    def call_soon(self, action: Action) -> None:
        """Have something done by the thread that waits."""
        self._actions.put(action)
        self.wake()

    def watch(self, fd: int, action: Action) -> None:
        """Have `action` done each time when that descriptor has something to read."""
        self._readers[fd] = action
        self._epoll.register(fd, select.EPOLLIN)

    def when_writable(self, fd: int, write: Callable[[], None] | None) -> None:
        """Have `write` called each time when there is room at a descriptor that is watched; None: no more."""
        if fd not in self._readers:
            return
        if write is None:
            self._writers.pop(fd, None)
        else:
            self._writers[fd] = write
        self._epoll.modify(fd, select.EPOLLIN if write is None else select.EPOLLIN | select.EPOLLOUT)

    def forget(self, fd: int) -> None:
        """Watch it no more; one that is not watched is no error."""
        if self._readers.pop(fd, None) is not None:
            self._writers.pop(fd, None)
            self._epoll.unregister(fd)

    def wait(self, timeout: float | None, events: list[Event]) -> None:
        """Do what there is to do; wait for something at most so many seconds (None: no limit)."""
        for fd, mask in self._epoll.poll(-1 if timeout is None else max(0.0, timeout)):
            if fd == self._woken:
                os.eventfd_read(fd)
                continue
            if mask & select.EPOLLOUT and (write := self._writers.get(fd)) is not None:
                write()
            if mask & ~select.EPOLLOUT and (action := self._readers.get(fd)) is not None:
                action(events)
        while not self._actions.empty():  # nobody else takes from it
            self._actions.get()(events)
