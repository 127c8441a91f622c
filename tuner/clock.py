"""Where time comes from: the system, or a test."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time. Everything below the loop gets its clock from outside."""

    virtual: bool
    """It moves when it is told to: nobody outside of this process lives by it."""

    def time(self) -> float:
        """Seconds since the epoch, for what people read."""

    def monotonic(self) -> float:
        """Seconds that never go back, for deadlines and durations."""

    def sleep(self, seconds: float) -> None:
        """Return when so many seconds are over."""


class SystemClock:
    """The machine's own clock."""

    virtual = False

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class VirtualClock:
    """A clock that stands still until it is told to move.

    Args:
        start: seconds since the epoch at which it stands first.

    Example:
        >>> clock = VirtualClock()
        >>> clock.advance(90.0)
        >>> clock.monotonic()
        90.0
    """

    virtual = True

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._start = start
        self._elapsed = 0.0

    def time(self) -> float:
        return self._start + self._elapsed

    def monotonic(self) -> float:
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Move on. Raises ValueError for a negative number."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back by {-seconds} s")
        self._elapsed += seconds

    sleep = advance

    def advance_to(self, monotonic: float) -> None:
        """Move on to a point of `monotonic()`; one that has passed changes nothing."""
        self._elapsed = max(self._elapsed, monotonic)
