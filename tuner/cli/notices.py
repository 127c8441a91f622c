"""SIGTERM, SIGUSR1 and SIGHUP to `tuner run` outside of its run: they end its start, and change nothing afterwards."""

from __future__ import annotations

import atexit
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from trainables.runtime.notice import notices
from tuner.callback import Callback
from tuner.driver.endings import HaltCause


class Notices(Callback):
    """Handlers around a run, of which this is a callback too; only in the main thread.

    A notice before the run ends the process in order. Once the run has ended, its result decides the exit status.
    """

    changes_results = False

    def __init__(self) -> None:
        self._ended = False
        self._before: dict[int, Any] = {}

    def on_experiment_end(self, *_: Any, **__: Any) -> None:
        self._ended = True

    def __enter__(self) -> Notices:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._end) for number in notices()}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended and self._before:
            atexit.register(_ignore, *self._before)  # Python restores the defaults before its process ends
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def _end(self, number: int, frame: FrameType | None) -> None:
        if not self._ended:
            raise SystemExit((HaltCause.HUNG_UP if number == signal.SIGHUP else HaltCause.PREEMPTED).exit_status)


def _ignore(*numbers: int) -> None:
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
