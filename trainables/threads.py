"""Pools of threads that get along with what the system gives."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _NoThread(Exception):
    def __init__(self, item: Any) -> None:
        self.item = item


class Threads(ThreadPoolExecutor):
    """A pool that does with fewer threads where the system gives no more; without any, `submit` does the work itself.

    >>> with Threads(2) as pool:
    ...     pool.submit(len, "four").result()
    4
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        try:
            return super().submit(fn, *args, **kwargs)
        except _NoThread as refused:  # not before the locks are free that all pools share
            refused.item.run()
            future: Future[T] = refused.item.future
            return future

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except (RuntimeError, MemoryError) as error:
            if not self._threads:  # else one of them takes up what is queued
                raise _NoThread(self._work_queue.get_nowait()) from error
