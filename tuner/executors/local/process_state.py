"""What belongs to a process and not to the objects in it, put back to what a fresh trial finds."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
import warnings
from types import ModuleType
from typing import Any

from tuner import knobs

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
    """The state of this process now: working directory, environment, signals, streams, hooks, logging.

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
        self._logging = _Logging()

    def put_back(self) -> None:
        """Let all of it be as it was; what was written so far goes where it was written to."""
        self._flush()
        os.fchdir(self._cwd)
        os.umask(self._umask)
        knobs.set_environment(self._environment)
        for timer in _TIMERS:
            signal.setitimer(timer, 0)
        for number, handler in self._handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        for owner, name, value in self._hooks:
            setattr(owner, name, value)
        self._logging.put_back()

    def _flush(self) -> None:
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            try:
                if stream is not None:
                    stream.flush()
            except (OSError, ValueError):
                pass  # a full disk, or the user closed it
        ctypes.CDLL(None).fflush(None)  # of libraries that print by themselves


class _Logging:
    """Handlers and levels of all loggers; one that was not there then keeps its level, and has no handlers."""

    def __init__(self) -> None:
        self._loggers = {
            logger: (list(logger.handlers), logger.level, logger.propagate, logger.disabled) for logger in _loggers()
        }
        self._disabled = logging.root.manager.disable

    def put_back(self) -> None:
        logging.disable(self._disabled)
        for logger in _loggers():
            handlers, level, propagate, disabled = self._loggers.get(
                logger, ([], logger.level, logger.propagate, logger.disabled)
            )
            for handler in [each for each in logger.handlers if each not in handlers]:
                logger.removeHandler(handler)
                _close(handler)
            for handler in [each for each in handlers if each not in logger.handlers]:
                logger.addHandler(handler)
            logger.propagate, logger.disabled = propagate, disabled
            if logger.level != level:
                logger.setLevel(level)


def _loggers() -> list[logging.Logger]:
    named = list(logging.root.manager.loggerDict.values())
    return [logging.root, *(logger for logger in named if isinstance(logger, logging.Logger))]


def _close(handler: Any) -> None:
    try:
        handler.close()
    except Exception:
        pass  # the user's own class: nobody is left whom that would help
