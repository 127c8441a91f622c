"""The notice to leave: SIGTERM and SIGUSR1 in a trial's own process, and the grace time that they start."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from trainables.errors import LimitError
from trainables.starting import start_thread

_log = logging.getLogger(__name__)

_NOTICES = (signal.SIGTERM, signal.SIGUSR1)
_MARGIN = 0.1
"""Share of the grace time that is kept for the last words."""


def listen(noticed: Callable[[], None]) -> dict[int, Any]:
    """Have `noticed` called, in a signal handler, when a signal tells this process to leave; the handlers before.

    The driver alone decides what Ctrl-C means. A handler, and not SIG_IGN, which programs that the user's code starts
    would inherit.
    """
    pid = os.getpid()

    def hear(number: int, frame: FrameType | None) -> None:
        if os.getpid() != pid:  # a forked child of the user's: for it the signal means what it always means
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        else:
            noticed()

    def overhear(number: int, frame: FrameType | None) -> None:
        if os.getpid() != pid:
            raise KeyboardInterrupt

    before: dict[int, Any] = {number: signal.signal(number, hear) for number in _NOTICES}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, overhear)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, before)
    return before


class Notice:
    """Listens for the notice while it is entered. Main thread of a process of the trial's own only.

    Args:
        grace_s: Seconds from the notice until `expired` is called, less a margin for what it does.
        noticed: Called in the main thread, in a signal handler.
        expired: Called in a thread of its own when the trial has not left by then. It ends the process.
    """

    def __init__(self, grace_s: float, *, noticed: Callable[[], None], expired: Callable[[], None]) -> None:
        self._grace_s = grace_s
        self._noticed, self._expired = noticed, expired
        self._left = threading.Event()
        self._timer: threading.Thread | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Notice:
        self._before = listen(self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._timer is not None:
            self._timer.join()

    def start_grace(self) -> None:
        """Let the grace time run from now, unless it does already."""
        if self._timer is None:
            try:
                self._timer = start_thread(self._wait, name="trial-grace")
            except LimitError as error:  # in a signal handler: the user's code must not see it
                _log.warning("the trial is not ended when its grace time is over, but by its driver: %s", error)

    def _hear(self) -> None:
        self._noticed()
        self.start_grace()

    def _wait(self) -> None:
        if not self._left.wait(self._grace_s * (1 - _MARGIN)):
            self._expired()
