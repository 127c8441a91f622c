"""Warnings about calls to callbacks and plug-ins that hold up the driver's loop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType

from tuner.clock import Clock

log = logging.getLogger(__name__)

SLOW_S = 1.0
"""A call that takes at least so long is warned of."""


class SlowCalls:
    """Logs one warning for each method that was slow, however often it is.

    Args:
        clock: measures the calls.
        holds_up: returns True while a slow call delays trials.
    """

    def __init__(self, clock: Clock, holds_up: Callable[[], bool]) -> None:
        self.clock, self._holds_up = clock, holds_up
        self._warned: set[str] = set()

    def ended(self, name: str, seconds: float) -> None:
        """Warn of a call that took so long, unless that method was warned of before."""
        if name in self._warned or not self._holds_up():
            return
        self._warned.add(name)
        log.warning(
            "%s took %.1f s. Meanwhile the reports and starts of all trials waited: it runs in the driver's loop. Do "
            "what takes long in a thread. This is logged once for %s",
            name,
            seconds,
            name,
            extra={"each": True},
        )


_watching: ContextVar[SlowCalls | None] = ContextVar("tuner-slow-calls", default=None)


@contextmanager
def watched_calls(clock: Clock, holds_up: Callable[[], bool]) -> Iterator[None]:
    """Measure all `timed` calls of this thread meanwhile."""
    token = _watching.set(SlowCalls(clock, holds_up))
    try:
        yield
    finally:
        _watching.reset(token)


class timed:  # a generator would cost each result more
    """Context of one call to a callback or plug-in. Outside of `watched_calls` nothing is measured.

    Args:
        name: returns what the user calls it: "MyCallback.on_trial_result".
    """

    __slots__ = ("_begun", "_name", "_slow")

    def __init__(self, name: Callable[[], str]) -> None:
        self._name, self._slow, self._begun = name, _watching.get(), 0.0

    def __enter__(self) -> None:
        if self._slow is not None:
            self._begun = self._slow.clock.monotonic()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._slow is not None and error is None:
            seconds = self._slow.clock.monotonic() - self._begun
            if seconds >= SLOW_S:
                self._slow.ended(self._name(), seconds)
