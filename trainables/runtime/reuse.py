"""The object of a class trainable that goes from one attempt to the next in its process (`reuse_actors=True`)."""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from trainables import session
from trainables.automatic import TimeSource
from trainables.checkpoint import Checkpoint
from trainables.context import TrainContext
from trainables.errors import SessionError
from trainables.job import Job
from trainables.runtime.attempt import Attempt
from trainables.trainable import Trainable, make, take_over
from trainables.wire import DriverLink, nothing

_log = logging.getLogger(__name__)


class ResetRefusedError(BaseException):
    """`reset_config` has not returned True: the attempt has not begun, and needs a fresh process.

    Not an Exception, as it is none of the attempt's: it says nothing to the driver.
    """


class Reuse:
    """Holds the object between two attempts.

    Args:
        accepted: called when the object has taken the next attempt over.
        in_place: an object that does not is replaced by a new one; else `ResetRefusedError` is raised.
    """

    def __init__(self, accepted: Callable[[], None] = nothing, *, in_place: bool = False) -> None:
        self.accepted = accepted
        self.kept: Trainable | None = None
        """What the next attempt may take over; None: there is nothing."""
        self._in_place = in_place
        self._strangers: weakref.WeakSet[threading.Thread] = weakref.WeakSet()

    def attempt(self, job: Job, link: DriverLink, *, clock: TimeSource) -> Attempt:
        """The next attempt. Threads that attempts before it have left may not report to it."""
        return (
            _LaterAttempt(job, link, clock=clock, strangers=self._strangers)
            if self.kept
            else Attempt(job, link, clock=clock)
        )

    def trainable(self, attempt: Attempt, kind: type[Trainable]) -> Trainable:
        """The object for an attempt: the one that is there, if its `reset_config` says so, else a new one."""
        if self.kept is None:
            return make(kind, attempt.job, attempt.keys)
        with session.activated(_Resetting(attempt)):
            taken = take_over(self.kept, attempt.job, attempt.keys)
        if taken:
            self.accepted()
            trainable, self.kept = self.kept, None
            return trainable
        if not self._in_place:
            raise ResetRefusedError
        self.drop()
        return make(kind, attempt.job, attempt.keys)

    def keep(self, trainable: Trainable) -> None:
        """The attempt has ended well: the next one may have its object."""
        self.kept = trainable
        main = threading.main_thread()
        self._strangers.update(thread for thread in threading.enumerate() if thread is not main)

    def drop(self) -> None:
        """There is no next attempt here."""
        trainable, self.kept = self.kept, None
        if trainable is not None:
            clean_up(trainable)


def clean_up(trainable: Trainable) -> None:
    """Call `cleanup`; what it raises harms nobody."""
    try:
        trainable.cleanup()
    except Exception:
        _log.exception("cleanup() failed; the trial's results and checkpoints are not touched by that")


class _LaterAttempt(Attempt):
    """An attempt in a process that has seen others."""

    def __init__(
        self, job: Job, link: DriverLink, *, clock: TimeSource, strangers: weakref.WeakSet[threading.Thread]
    ) -> None:
        super().__init__(job, link, clock=clock)
        self._strangers = strangers

    def _check_process(self) -> None:
        super()._check_process()
        thread = threading.current_thread()
        if thread in self._strangers:
            raise SessionError(
                f"report() was called in the thread {thread.name!r}, which an earlier trial has left in this process "
                f"(reuse_actors=True), while {self.job.trial_name} runs: the result is refused"
            )


class _Resetting:
    """The session while `reset_config` runs: it tells which trial it is, and takes no result."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    @property
    def context(self) -> TrainContext:
        return self._attempt.context

    def report(self, metrics: Mapping[str, Any], checkpoint: Checkpoint | None = None) -> NoReturn:
        raise SessionError("report() was called in reset_config(), before the trial has begun: report in step()")

    def checkpoint_dir(self, step: int | None = None) -> contextlib.AbstractContextManager[str]:
        raise SessionError("checkpoint_dir() was called in reset_config(), before the trial has begun")

    def get_checkpoint(self) -> Checkpoint | None:
        return self._attempt.get_checkpoint()
