"""One attempt of a trial, from its first line to its last message: `run_job`, which executors call."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

from trainables import knobs, session
from trainables.automatic import TimeSource
from trainables.errors import CheckpointBudgetError, LimitError, PublishError, TransferError
from trainables.job import Job, SavePace
from trainables.net.failed import DISK, errno_of
from trainables.pickling import pickled
from trainables.quick_dataclass import compile_now
from trainables.runtime.attempt import Attempt
from trainables.runtime.class_loop import run_class
from trainables.runtime.function import check_before_the_fork, run_function
from trainables.runtime.function_trainable import function_of, is_class_api
from trainables.runtime.hints import hint_of
from trainables.runtime.notice import Notice
from trainables.runtime.reading import Reading
from trainables.runtime.reuse import ResetRefusedError, Reuse
from trainables.runtime.saving import MADE_BY_A_SAVE
from trainables.runtime.seeding import forget_later_imports, seed_everything
from trainables.runtime.tracebacks import message_of, user_traceback
from trainables.store import fs
from trainables.wire import AttemptErrored, DriverLink, Finished, Preempted

compile_now(Job, SavePace, *MADE_BY_A_SAVE)  # before the fork: else in each trial

__all__ = ["run_job", "seed_everything"]

_LOW_DISK = 1024 * 1024


def run_job(
    job: Job,
    trainable: Any,
    link: DriverLink,
    *,
    clock: TimeSource = time,
    own_process: bool = True,
    reuse: Reuse | None = None,
) -> None:
    """Run one attempt of a trial and tell the driver how it ended, with exactly one last message.

    Everything staged is published before that message, or removed. When the driver is gone, nothing is said, and this
    returns all the same.

    Args:
        job: What to run; its checkpoint has been verified.
        trainable: A function, or a subclass of `Trainable`.
        link: The line to the driver.
        clock: Where the time comes from.
        own_process: True in a process of the trial's own: signals are listened to, and the grace time may end the
            process. False in a process that has others' work to do: nothing of that, and Ctrl-C goes through.
        reuse: Where the object of a class trainable comes from, and goes to. Raises ResetRefusedError, and nothing was
            said, when the one that is there does not take this attempt.

    The working directory, `tempfile.tempdir` and the current session are put back at the end.
    """
    if job.group_nodes is not None and job.group_nodes.number:
        _follow(job, trainable, link)
        return
    attempt = Attempt(job, link, clock=clock) if reuse is None else reuse.attempt(job, link, clock=clock)
    undo: list[Callable[[], object]] = [attempt.saver.close]
    try:
        try:
            message = _attempt(attempt, trainable, link, own_process, undo, reuse)
        except ResetRefusedError:
            raise
        except KeyboardInterrupt as error:
            if not own_process:
                raise
            message = _errored(attempt, error, own_process)
        except BaseException as error:  # SystemExit too: the user's function called sys.exit()
            message = _errored(attempt, error, own_process)
        attempt.saver.close()  # waits: what is on its way counts for what is said now
        if reuse is not None and not isinstance(message, Finished):
            reuse.drop()
        attempt.end(message)
    finally:
        _undo(undo)


def prepare(trainable: Any) -> None:
    """Before the fork: what would be the same in each trial of a trainable. Raises what the trial would raise."""
    if not is_class_api(trainable):
        check_before_the_fork(function_of(trainable))


def _undo(undo: list[Callable[[], object]]) -> None:
    """Call what puts things back, the last first, each whatever the others raise.

    An ExitStack, of which each trial would copy the pages of a dozen functions.
    """
    try:
        while undo:
            undo.pop()()
    finally:
        if undo:
            _undo(undo)


def _follow(job: Job, trainable: Any, link: DriverLink) -> None:
    """Be the process of a further node, of which the first one's tells all; unless it is not reached."""
    message: Finished | AttemptErrored = Finished()
    undo: list[Callable[[], object]] = []
    try:
        try:
            _go_in_place(job, undo)
            trainable.follow(job)
        finally:
            _undo(undo)
    except Exception as error:
        message = AttemptErrored(type(error).__name__, message_of(error), user_traceback(error), _pickled(error))
    link.send(message)


def _attempt(
    attempt: Attempt,
    trainable: Any,
    link: DriverLink,
    own_process: bool,
    undo: list[Callable[[], object]],
    reuse: Reuse | None,
) -> Finished | Preempted | AttemptErrored:
    job = attempt.job
    _go_in_place(job, undo)
    before = session.activate(attempt)
    undo.append(lambda: session.activate(before))
    if own_process and threading.current_thread() is threading.main_thread():
        notice = Notice(job.grace_s, noticed=attempt.notice, expired=lambda: _expire(attempt))
        notice.__enter__()
        undo.append(notice.__exit__)
        attempt.on_leaving = notice.start_grace
    if own_process:  # in the driver's own, its deleter sees what is open
        reading = Reading(link).__enter__()
        undo.append(reading.__exit__)
        attempt.saver.before_published = reading.before_published
    undo.append(forget_later_imports)
    attempt.seed = seed_everything(job.seed, job.index, job.start_iteration)
    try:
        if is_class_api(trainable):
            run_class(attempt, trainable, reuse)
        else:
            run_function(attempt, function_of(trainable))
    except SystemExit as error:
        if error.code not in (None, 0):
            raise
    attempt.saver.wait()
    if attempt.answer.then != "continue":
        return Finished()  # told so, whatever came after
    if attempt.preempted:
        return Preempted()
    attempt.saver.raise_if_failing()
    return Finished()


def _go_in_place(job: Job, undo: list[Callable[[], object]]) -> None:
    """Into the trial's directory, with temporary files on its filesystem."""
    before, temporary, path, at = os.getcwd(), tempfile.tempdir, list(sys.path), str(job.temporary)
    original = str(job.original_cwd)
    if original[:1] != "/":
        original = os.path.abspath(original)
    if not os.path.isdir(at):  # else `makedirs` would ask for each directory above it
        os.makedirs(at, exist_ok=True)
    told = knobs.set_original_directory(original)

    def back() -> None:
        knobs.set_original_directory(told)
        sys.path[:], tempfile.tempdir = path, temporary
        if job.chdir:
            os.chdir(before)

    undo.append(back)
    tempfile.tempdir = at
    if job.chdir:
        # "" means the working directory, and modules beside the user's script must stay importable.
        sys.path[:] = [entry or original for entry in sys.path]
        os.chdir(job.directory)


def _expire(attempt: Attempt) -> None:
    """The grace time is over: end with the latest checkpoint. In the timer's thread."""
    attempt.saver.wait(attempt.job.grace_s * 0.05)
    attempt.saver.abandon()
    attempt.end(Preempted())
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the user may have closed or replaced it
            stream.flush()
    os._exit(0)


def _errored(attempt: Attempt, error: BaseException, own_process: bool) -> AttemptErrored:
    text = message_of(error)
    hint = hint_of(error, attempt.job, own_process=own_process)
    if hint is not None:
        text += f" ({hint})"
        error.add_note(hint)
    trace = user_traceback(error)
    if hint is not None and hint not in trace:
        trace += f"{hint}\n"
    free = fs.free_bytes(attempt.job.directory)
    full = free is not None and free < _LOW_DISK
    told = isinstance(error, PublishError | TransferError) and errno_of(error) in DISK
    if full and not told:
        text += f" (disk full: {free} bytes are free at {attempt.job.directory})"
    return AttemptErrored(
        type=type(error).__name__,
        message=text,
        traceback=trace,
        pickled=_pickled(error),
        retry=not isinstance(error, CheckpointBudgetError),
        disk=full or _blames_disk(error),
    )


def _blames_disk(error: BaseException) -> bool:
    if isinstance(error, PublishError):
        return not isinstance(error.__cause__, LimitError)
    return isinstance(error, OSError) and not isinstance(error, TransferError) and error.errno in DISK


def _pickled(error: BaseException) -> bytes:
    """The exception for the driver; b"" where it does not survive the way, which only costs its type."""
    return pickled(error, kind=BaseException) or b""
