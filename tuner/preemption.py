"""Callbacks that detect a preemption of this machine, and end the run as a SIGTERM would.

    tune.run(train, callbacks=[tune.preemption.watch(detect_instance_preemption, every_s=5)])
    tune.run(train, callbacks=[tune.preemption.watch_file("/run/maintenance")])

Every running trial gets the grace time (TUNE_GRACE_S, 30 s): a class trainable saves at its next step, a function sees
`get_context().should_stop()`. None of that counts as a failure; the run raises `SystemExit(143)`, and is continued by
`resume="AUTO"`, or by `Tuner.restore(path, trainable)`. SIGTERM, SIGUSR1 and SIGHUP do the same without a callback.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Any

from trainables.starting import start_thread
from trainables.validation import seconds
from tuner.callback import Callback
from tuner.error import SettingError

__all__ = ["Watching", "watch", "watch_file"]

log = logging.getLogger(__name__)


class Watching(Callback):
    """The callback that `watch` and `watch_file` make."""

    changes_results = False

    def __init__(self, begin: Callable[[], Callable[[], bool]], *, every_s: float, name: str) -> None:
        self._begin, self._every_s, self._name = begin, every_s, name
        self._found = False
        self._over: threading.Event | None = None

    def setup(self, *args: Any, **info: Any) -> None:
        self._found, self._over = False, threading.Event()
        # A thread, for a question to a machine's metadata may hang; the loop does not wait for it.
        start_thread(self._watch, name="preemption", args=(self._begin(), self._over))

    def is_preempted(self) -> bool:
        return self._found

    def next_refresh(self) -> float | None:
        return None if self._found else self._every_s

    def on_experiment_end(self, trials: Any, **info: Any) -> None:
        if self._over is not None:
            self._over.set()
        self._over = None

    def _watch(self, detect: Callable[[], bool], over: threading.Event) -> None:
        failed = False
        while True:
            try:
                if detect():
                    log.warning("preempted, as %s says: every running trial may save, and the run ends", self._name)
                    self._found = True
                    return
            except Exception:
                if not failed:
                    log.exception("%s failed; it is asked again every %g s", self._name, self._every_s)
                failed = True
            if over.wait(self._every_s):
                return


def _changes_of(path: str) -> Callable[[], bool]:
    """Whether a file comes or changes from now on."""

    def look() -> tuple[int, int] | None:
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_ino, status.st_mtime_ns

    before = look()
    return lambda: look() not in (None, before)


def watch(function: Callable[[], bool], *, every_s: float = 5.0) -> Watching:
    """A callback that ends the run in order once `function()` is true.

    Args:
        function: called without arguments, in a thread of its own. What it raises is logged once, and it is asked
            again.
        every_s: seconds between two questions.

    Raises SettingError for what cannot be called, InvalidSettingError for other seconds than those above 0.
    """
    if not callable(function):
        raise SettingError(f"preemption.watch: {function!r} is not accepted; accepted is a function () -> bool")
    named = getattr(function, "__name__", type(function).__name__)
    every_s = seconds("preemption.watch: every_s", every_s, zero=False)
    return Watching(lambda: function, every_s=every_s, name=f"{named}()")


def watch_file(path: str | os.PathLike[str], *, every_s: float = 1.0) -> Watching:
    """A callback that ends the run in order once there is a file at `path`.

    One that is there when the run begins, as of the last preemption, counts once it was written to or made anew.

    Args:
        path: of the file, or of a directory.
        every_s: seconds between two looks.

    Raises SettingError for what is no path, InvalidSettingError for other seconds than those above 0.
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise SettingError(f"preemption.watch_file: {path!r} is not accepted; accepted is a path")
    every_s = seconds("preemption.watch_file: every_s", every_s, zero=False)
    place = os.path.abspath(os.path.expanduser(path))
    return Watching(lambda: _changes_of(place), every_s=every_s, name=place)
