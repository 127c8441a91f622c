"""Ctrl-C, SIGTERM and SIGUSR1 while a run goes on; the user's own handlers are restored afterwards."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from tuner.executors.base import Executor
from tuner.loop import TrialLoop


class Signals:
    """Context: the first signal ends the run in order, a second Ctrl-C at once; only in the main thread."""

    def __init__(self, loop: TrialLoop, executor: Executor) -> None:
        self._loop, self._executor = loop, executor
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number, handler in (
                (signal.SIGINT, self._interrupt),
                (signal.SIGTERM, self._preempt),
                (signal.SIGUSR1, self._preempt),
            ):
                self._before[number] = signal.signal(number, handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._loop.halting:
            raise KeyboardInterrupt
        self._loop.ask_to_halt("interrupted")
        self._executor.wake()

    def _preempt(self, number: int, frame: FrameType | None) -> None:
        self._loop.ask_to_halt("preempted")
        self._executor.wake()
