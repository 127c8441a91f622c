"""Ctrl-C, SIGTERM and SIGUSR1 while a run goes on; the user's own handlers are restored afterwards."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from tuner import knobs
from tuner.driver.endings import Endings, HaltCause
from tuner.executors.base import Executor


class Signals:
    """Context: the first signal ends the run in order, a second Ctrl-C at once; only in the main thread.

    With TUNE_DISABLE_SIGINT_HANDLER=1 a Ctrl-C is Python's own.

    Once the loop has ended (`leave`) a Ctrl-C means the wait until everything is copied, also where it comes earlier.
    """

    def __init__(self, endings: Endings, executor: Executor) -> None:
        self._endings, self._executor = endings, executor
        self._before: dict[int, Any] = {}
        self._leaving = False
        self.hurried = False
        """Nothing is to be waited for any longer."""

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number, handler in (
                (signal.SIGINT, self._interrupt),
                (signal.SIGTERM, self._preempt),
                (signal.SIGUSR1, self._preempt),
            ):
                if number != signal.SIGINT or knobs.handles_interrupts():
                    self._before[number] = signal.signal(number, handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back(*self._before)

    def leave(self) -> None:
        """The loop has ended."""
        self._leaving = True
        if self._endings.halting and self._endings.halted is None:
            self.hurried = True  # it came when the loop looked no more
        self._give_back(*(number for number in self._before if number != signal.SIGINT))

    def _give_back(self, *numbers: int) -> None:
        for number in numbers:
            handler = self._before.pop(number)
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.hurried or (self._endings.halting and not self._leaving):
            raise KeyboardInterrupt
        if self._leaving:
            self.hurried = True
            return
        self._endings.ask(HaltCause.INTERRUPTED)
        self._executor.wake()

    def _preempt(self, number: int, frame: FrameType | None) -> None:
        self._endings.ask(HaltCause.PREEMPTED)
        self._executor.wake()
