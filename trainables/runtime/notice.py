"""The notice to leave: SIGTERM, SIGUSR1 and SIGHUP in a trial's own process, and the grace time that they start."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from trainables.errors import LimitError
from trainables.starting import start_thread

_log = logging.getLogger(__name__)

set_handler: Final[Callable[[int, Any], Any]] = _signal.signal
"""`signal.signal` without the Enums that it makes of what it gets and returns: each trial would copy their pages. It
takes functions, `DEFAULT`, and what it has returned."""
DEFAULT: Final = int(signal.SIG_DFL)

_MARGIN = 0.1
"""Share of the grace time that is kept for the last words."""


def notices() -> tuple[int, ...]:
    """Return the signals that announce the end: SIGTERM, SIGUSR1, and SIGHUP unless this process ignores it (nohup)."""
    if ignores_hangup():
        return int(signal.SIGTERM), int(signal.SIGUSR1)
    return int(signal.SIGTERM), int(signal.SIGUSR1), int(signal.SIGHUP)


def ignores_hangup() -> bool:
    """Return True if SIGHUP is ignored, as in everything that was started with nohup."""
    return bool(_signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)


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

    before: dict[int, Any] = {number: set_handler(number, hear) for number in notices()}
    before[signal.SIGINT] = set_handler(signal.SIGINT, overhear)
    _signal.pthread_sigmask(signal.SIG_UNBLOCK, before)
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
        self._staying = threading.Lock()  # held until the trial leaves; an Event would be nine functions more
        self._timer: threading.Thread | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Notice:
        self._staying.acquire()
        self._before = listen(self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        self._staying.release()
        for number, handler in self._before.items():
            set_handler(number, handler)
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
        if not self._staying.acquire(timeout=max(0.0, self._grace_s * (1 - _MARGIN))):
            self._expired()
