"""Ctrl-C, SIGTERM, SIGUSR1 and SIGHUP while a run goes on; the user's own handlers are restored afterwards."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import termios
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from trainables.runtime.notice import notices
from tuner import knobs
from tuner.driver.endings import Endings, HaltCause
from tuner.executors.base import Executor


class Signals:
    """Handlers of the signals that end a run, from the start of its loop to the return of `tune.run`.

    Entered around the whole of a run; only in the main thread. While the loop runs, the first signal ends the run in
    order, and a second Ctrl-C at once. With TUNE_DISABLE_SIGINT_HANDLER=1 a Ctrl-C is Python's own.

    Once the loop has ended (`leave`) the run ends as it would have. A Ctrl-C skips the wait until everything is copied,
    also where it comes earlier. A notice (SIGTERM, SIGUSR1, SIGHUP) bounds that wait by the grace time. Handlers of the
    script's own are called with that notice when the run returns.
    """

    def __init__(self) -> None:
        self._endings: Endings | None = None
        self._executor: Executor | None = None
        self._before: dict[int, Any] = {}
        self._leaving = False
        self._notice: int | None = None
        """The last notice."""
        self.hurried = False
        """Nothing is to be waited for any longer."""

    def __enter__(self) -> Signals:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back(*self._before)
        late = self._endings is not None and self._endings.late_notice
        if late and kind is not SystemExit and self._notice is not None and callable(signal.getsignal(self._notice)):
            signal.raise_signal(self._notice)

    @contextlib.contextmanager
    def handled(self, endings: Endings, executor: Executor) -> Iterator[None]:
        """Let signals end this run, from now on; Ctrl-C is Python's own afterwards."""
        self._endings, self._executor = endings, executor
        if threading.current_thread() is threading.main_thread():
            for number in notices():
                self._before[number] = signal.signal(number, self._preempt)
            if knobs.handles_interrupts():
                self._before[signal.SIGINT] = signal.signal(signal.SIGINT, self._interrupt)
        try:
            yield
        finally:
            self._give_back(*({signal.SIGINT} & self._before.keys()))

    def leave(self) -> None:
        """The loop has ended."""
        self._leaving = True
        endings = self._endings
        if endings is not None and endings.asked is not None and endings.halted is None:  # the loop looked no more
            if endings.asked is HaltCause.INTERRUPTED:
                self.hurried = True
            else:
                endings.late_notice = True

    def _give_back(self, *numbers: int) -> None:
        for number in numbers:
            handler = self._before.pop(number)
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        assert self._endings is not None
        if self.hurried or (self._endings.halting and not self._leaving):
            raise KeyboardInterrupt
        if self._leaving:
            self.hurried = True
            return
        self._ask(HaltCause.INTERRUPTED)

    def _preempt(self, number: int, frame: FrameType | None) -> None:
        assert self._endings is not None
        self._notice = number
        if number == signal.SIGHUP:
            _release_terminal()
        if self._leaving:
            self._endings.late_notice = True
            return
        self._ask(HaltCause.HUNG_UP if number == signal.SIGHUP else HaltCause.PREEMPTED)

    def _ask(self, why: HaltCause) -> None:
        assert self._endings is not None and self._executor is not None
        self._endings.ask(why)
        self._executor.wake()


def _release_terminal() -> None:
    """Redirect standard streams on a terminal that has hung up to /dev/null: otherwise each `print` raises OSError."""
    for fd in range(3):
        try:
            termios.tcgetattr(fd)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                null = os.open(os.devnull, os.O_RDWR)
                os.dup2(null, fd)
                os.close(null)
