"""Back-off: what failed is tried again after a pause, longer each time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from trainables.errors import StoreBusyError
from trainables.quick_dataclass import dataclass

log = logging.getLogger(__name__)

T = TypeVar("T")

LONGEST_PAUSE_S = 60.0


def pause_s(failures: int) -> float:
    """Seconds to wait after so many failures in a row (from 1): 0.5, 1, 2, ... 60."""
    return float(min(0.5 * 2 ** min(failures - 1, 16), LONGEST_PAUSE_S))


@dataclass(slots=True)
class BackOff:
    """When something that failed may be tried again."""

    until: float = 0.0
    """Not before that monotonic time."""
    failures: int = 0
    """In a row."""

    def ended(self, now: float, *, well: bool) -> None:
        if well:
            self.succeeded()
        else:
            self.failed(now)

    def succeeded(self) -> None:
        self.failures, self.until = 0, 0.0

    def failed(self, now: float) -> None:
        self.failures += 1
        self.until = now + pause_s(self.failures)


def patient(call: Callable[[], T], limit_s: float) -> T:
    """What `call` returns, tried again after 1, 2, 4 ... 60 s while the store is overloaded, for `limit_s` seconds.

    Ctrl-C ends the wait. Raises what `call` raises, StoreBusyError at last.
    """
    begun, tries = time.monotonic(), 1
    while True:
        try:
            return call()
        except StoreBusyError as error:
            left, tries = begun + limit_s - time.monotonic(), tries + 1
            if left <= 0:
                raise
            pause = min(pause_s(tries), left)
            log.warning(
                "waiting for the store, tried again in %.0f s, for %.0f s more (sync_timeout; Ctrl-C ends it): %s",
                pause,
                left,
                error,
            )
            time.sleep(pause)  # of a driver that has not begun: nothing else wants to be done
