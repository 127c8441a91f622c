"""What the driver's thread waits for: things to do from other threads, and lines to agents that have something."""

from __future__ import annotations

import os
import queue
import select
import weakref
from collections.abc import Callable

from tuner.executors.base import Event

Item = Callable[[list[Event]], None]
"""Something to do in the driver's thread; may add events."""


class Inbox:
    """`put` may be called from any thread, and from a signal handler; the rest belongs to the driver's."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._epoll = select.epoll()
        self._woken = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._woken, select.EPOLLIN)
        self._watched: dict[int, Item] = {}
        # Not before, and not at exit either: a late thread would find it closed, or another's file in its place.
        weakref.finalize(self, os.close, self._woken).atexit = False

    def put(self, item: Item) -> None:
        """Have something done soon."""
        self._items.put(item)
        os.eventfd_write(self._woken, 1)

    def watch(self, fd: int, item: Item) -> None:
        """Have `item` done each time when that descriptor has something to read."""
        self._watched[fd] = item
        self._epoll.register(fd, select.EPOLLIN)

    def forget(self, fd: int) -> None:
        """Watch it no more; one that is not watched is no error."""
        if self._watched.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def wait(self, timeout: float | None, events: list[Event]) -> None:
        """Do what there is to do; wait for something at most so many seconds (None: no limit)."""
        for fd, _ in self._epoll.poll(-1 if timeout is None else max(0.0, timeout)):
            if fd == self._woken:
                os.eventfd_read(self._woken)
            elif (item := self._watched.get(fd)) is not None:
                item(events)
        while not self._items.empty():  # nobody else takes from it
            self._items.get()(events)
