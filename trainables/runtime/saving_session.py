"""What `report()` and `checkpoint_dir()` have alike in a trial's process and in each rank of a group."""

from __future__ import annotations

import contextlib
import logging
import operator
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from trainables.checkpoint import Checkpoint
from trainables.errors import InvalidSettingError, SessionError
from trainables.plain_metrics import plain_metrics
from trainables.runtime.saving import Staged

_log = logging.getLogger(__name__)


class TrialExit(BaseException):
    """Unwinds the user's function where the driver ended its trial.

    Not an Exception, so that `except Exception` around a training loop lets it through.
    """


class SavingSession(ABC):
    """A session that takes results from one thread at a time."""

    _process = "trial"

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._reporting = threading.RLock()
        self._over = False
        self._pending: Staged | None = None
        self._last: Mapping[str, Any] = {}

    def report(self, metrics: Mapping[str, Any], checkpoint: Checkpoint | None = None) -> None:
        """One result, with a checkpoint or without; returns when the driver has decided."""
        self._check_process()
        with self._reporting:
            if self._over:
                raise TrialExit  # the function swallowed the first one
            plain = self._last = plain_metrics(metrics)
            pending, self._pending = self._pending, None
            if checkpoint is not None and pending is not None:
                _log.warning("report() got a checkpoint besides checkpoint_dir(): the latter is dropped")
                self._drop(pending)
                pending = None
            self._take(plain, checkpoint, pending)

    def flush(self) -> None:
        """Report a `checkpoint_dir` that no report followed, with the last metrics once more: it must not be lost."""
        if self._pending is not None:
            self.report(self._last)

    @contextlib.contextmanager
    def checkpoint_dir(self, step: int | None = None) -> Iterator[str]:
        """A directory to save into; the next report takes it. Of two before one report, the later counts."""
        self._check_process()
        save = self._open(_step_number(step))
        try:
            yield str(save.path)
        except BaseException:
            self._drop(save)
            raise
        if self._pending is not None:
            _log.warning("checkpoint_dir() was used twice before a report: the earlier save is dropped")
            self._drop(self._pending)
        self._pending = save

    @abstractmethod
    def _take(self, metrics: Mapping[str, Any], checkpoint: Checkpoint | None, pending: Staged | None) -> None:
        """Take one result, with at most one of `checkpoint` and `pending`."""

    @abstractmethod
    def _open(self, number: int | None) -> Staged:
        """A new save, with the number that the user wants."""

    @abstractmethod
    def _drop(self, save: Staged) -> None:
        """Remove it."""

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise SessionError(
                f"report() was called in a child process of the {self._process}: send the values to the "
                f"{self._process}'s process, and report there"
            )


def _step_number(step: int | None) -> int | None:
    """`checkpoint_dir(step=)` as a number. Raises InvalidSettingError for what is none."""
    if step is None:
        return None
    try:
        number = operator.index(step)
    except TypeError:
        number = -1
    if number < 0:
        raise InvalidSettingError(f"checkpoint_dir(step={step!r}) is not accepted; accepted is an integer from 0 up")
    return number
