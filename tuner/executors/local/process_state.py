"""What belongs to a process and not to the objects in it, put back to what a fresh trial finds."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import signal
import sys
import threading
import time
import warnings
from types import ModuleType

from tuner import knobs
from tuner.executors.local.logging_state import LoggingState

_HOOKS: tuple[tuple[ModuleType, str], ...] = (
    (sys, "stdin"),
    (sys, "stdout"),
    (sys, "stderr"),
    (sys, "excepthook"),
    (sys, "unraisablehook"),
    (threading, "excepthook"),
    (warnings, "showwarning"),
)
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_KEPT = (signal.SIGKILL, signal.SIGSTOP)
"""Signals that have no handlers."""


class ProcessState:
    """The state of this process now: working directory, environment, signals, streams, hooks, interpreter, logging.

    What modules hold stays as it is. In the main thread.
    """

    def __init__(self) -> None:
        self._cwd = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._environment = knobs.environment()
        self._handlers = {number: signal.getsignal(number) for number in signal.valid_signals() - set(_KEPT)}
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        self._hooks = [(owner, name, getattr(owner, name)) for owner, name in _HOOKS]
        self._interpreter = _Interpreter()
        self._logging = LoggingState()

    def put_back(self) -> None:
        """Let all of it be as it was; what was written so far goes where it was written to."""
        self._flush()
        os.fchdir(self._cwd)
        os.umask(self._umask)
        knobs.set_environment(self._environment)
        time.tzset()  # what TZ says is looked at then only
        for timer in _TIMERS:
            signal.setitimer(timer, 0)
        for number, handler in self._handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        if (warnings, "showwarning", warnings.showwarning) not in self._hooks:
            logging.captureWarnings(False)  # else logging believes that it captures them, and never does again
        for owner, name, value in self._hooks:
            setattr(owner, name, value)
        self._interpreter.put_back()
        self._logging.put_back()

    def _flush(self) -> None:
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            try:
                if stream is not None:
                    stream.flush()
            except (OSError, ValueError):
                pass  # a full disk, or the user closed it
        ctypes.CDLL(None).fflush(None)  # of libraries that print by themselves


class _Interpreter:
    """Arguments, limits and the collector of the interpreter, and the processors that it may use."""

    def __init__(self) -> None:
        self._arguments = list(sys.argv)
        self._depth, self._interval = sys.getrecursionlimit(), sys.getswitchinterval()
        self._collects, self._thresholds = gc.isenabled(), gc.get_threshold()
        self._processors = os.sched_getaffinity(0)

    def put_back(self) -> None:
        sys.argv[:] = self._arguments
        sys.setrecursionlimit(self._depth)
        sys.setswitchinterval(self._interval)
        (gc.enable if self._collects else gc.disable)()
        gc.set_threshold(*self._thresholds)
        if os.sched_getaffinity(0) != self._processors:
            with contextlib.suppress(OSError):  # somebody has taken one away from the whole run
                os.sched_setaffinity(0, self._processors)
