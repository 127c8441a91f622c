"""How a trial saves: what was staged is published by a thread behind the training, one checkpoint at a time."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import msgspec

from trainables.automatic import TimeSource
from trainables.checkpoint import Checkpoint
from trainables.errors import CheckpointError, PublishError, TransferError
from trainables.job import Job
from trainables.net.failed import DISK
from trainables.quick_dataclass import dataclass
from trainables.runtime.tracebacks import message_of
from trainables.starting import start_thread
from trainables.store import file_tree, fs, publish, staging
from trainables.store.manifest import Published
from trainables.wire import CheckpointRef, DriverLink, PendingSave, SaveFailed, SavePublished

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Staged:
    """One save that nobody sees yet: a hidden directory with its files."""

    path: Path
    number: int | None = None
    """What the user wants the checkpoint to be numbered; None: by its iteration."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Notes for the manifest."""
    uploading: bool = False
    """The processes that saved it copy it to the replica themselves."""
    ref: CheckpointRef | None = None
    """What it will be called; None: that is not decided yet."""
    abandoned: bool = False
    """Nobody wants it any more, whatever the publisher is doing with it."""


@dataclass(frozen=True, slots=True)
class _Task:
    staged: Staged
    ref: CheckpointRef
    metrics: msgspec.Raw


MADE_BY_A_SAVE = (Staged, _Task, file_tree.Tree, file_tree.File, publish.PreparedCheckpoint, Published)


class Saver:
    """Stages, names and publishes the checkpoints of one attempt.

    At most one checkpoint is on its way: everything that begins the next one waits for it first. All methods but
    `abandon` are called from the trial's own thread.
    """

    def __init__(self, job: Job, link: DriverLink, *, clock: TimeSource) -> None:
        self._job, self._link, self._clock = job, link, clock
        self._index = 0
        self._numbers: dict[int, int] = {}
        self._open: set[Staged] = set()
        self._committing = threading.Lock()
        self._todo: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._idle: threading.Event | None = None
        """Set while nothing is on its way; None: nothing has been yet."""
        self._failures_in_row = 0
        self._last_failure: Exception | None = None
        self.published: Path | None = None
        """The newest checkpoint of this attempt that is on disk."""
        self.before_published: Callable[[], None] = lambda: None
        """Called before the driver hears of a publish."""

    # ------------------------------------------------------------ staging

    def open(self, number: int | None = None) -> Staged:
        """A fresh hidden directory on the trial's filesystem, to write the next checkpoint into."""
        self.wait()
        return self._opened(Staged(staging.new_directory(self._job.directory, str(self._index + 1)), number))

    def take(self, directory: Path, *, handed_over: bool, found: file_tree.Tree | None = None) -> Staged:
        """Stage a directory of the user's, moved when it was handed over, else cloned; `found` is `announce`'s."""
        self.wait()
        how = staging.hand_over if handed_over else staging.lend
        return self._opened(Staged(how(directory, self._job.directory, str(self._index + 1), found)))

    def adopt(self, staged: Path, extra: Mapping[str, Any], *, uploading: bool = False) -> Staged:
        """Take over a directory that another process of this trial has staged."""
        self.wait()
        return self._opened(Staged(staged, extra=dict(extra), uploading=uploading))

    def stage(self, checkpoint: Checkpoint, found: file_tree.Tree | None = None) -> Staged:
        """Stage what a user reports: written out from memory, moved, or cloned."""
        if not checkpoint.in_memory:
            return self.take(Path(checkpoint.path), handed_over=checkpoint.handed_over, found=found)
        with self.writing(self.open()) as staged:
            checkpoint._materialize(staged.path)
        return staged

    @contextlib.contextmanager
    def writing(self, staged: Staged) -> Iterator[Staged]:
        """Drop what is staged if writing it fails; a full or read-only disk is a PublishError."""
        try:
            try:
                yield staged
            except OSError as error:
                if error.errno not in DISK or isinstance(error, TransferError):
                    raise  # the user's own: a file that is not there, say, or another host's disk
                with staging.disk_errors(staged.path):
                    raise
        except BaseException:
            self.drop(staged)
            raise

    def drop(self, staged: Staged) -> None:
        """Remove what was staged; nothing of it was ever visible."""
        with self._committing:
            if staged in self._open:
                self._open.discard(staged)
                fs.remove_quietly(staged.path)

    def describe(self, staged: Staged, iteration: int) -> PendingSave:
        """Name a save and measure it. Each call counts as one save."""
        ref = staged.ref = self.name(iteration, staged.number)
        return PendingSave(ref=ref, bytes=file_tree.scan(staged.path, follow=False).bytes, uploading=staged.uploading)

    def announce(self, directory: Checkpoint, iteration: int) -> tuple[PendingSave, file_tree.Tree]:
        """Like `describe`, for a directory of the user's that will be staged at once, and what lies in it.

        Refuses what cannot be staged.
        """
        self.wait()
        found = file_tree.scan(Path(directory.path), follow=True)
        return PendingSave(ref=self.name(iteration), bytes=found.bytes), found

    def name(self, iteration: int, number: int | None = None) -> CheckpointRef:
        """The next save's reference: numbered by save index, by the user, or by iteration."""
        job = self._job
        self._index += 1
        if job.name_by_index:
            number = job.save_count + self._index
        elif number is None:
            number = iteration
        earlier = self._numbers.get(number, 0)
        name = publish.checkpoint_name(number, job.generation, job.attempt, earlier)
        self._numbers[number] = earlier + 1
        return CheckpointRef(
            trial_id=job.trial_id,
            name=name,
            generation=job.generation,
            attempt=job.attempt,
            index=self._index,
            iteration=iteration,
        )

    # ------------------------------------------------------------ publishing

    def publish(self, staged: Staged, ref: CheckpointRef, metrics: msgspec.Raw) -> None:
        """Hand a save to the publisher; with `publish="blocking"` wait until it is on disk."""
        idle = self._idle or threading.Event()
        if self._thread is None:
            self._thread = start_thread(self._publisher, args=[idle], name="trial-publisher")
        idle.clear()
        self._idle = idle
        self._todo.put(_Task(staged, ref, metrics))
        if self._job.publish == "blocking":
            self.wait()

    def failed(self, ref: CheckpointRef, error: Exception, *, raised: bool = False) -> None:
        """Count a save that did not reach the disk, and tell the driver; `raised`: and so is the user's code."""
        self._failures_in_row += 1
        self._last_failure = error
        why = message_of(error)
        _log.warning("checkpoint %s was not saved: %s", ref.name, why)
        try:
            self._link.post(SaveFailed(ref=ref, error=why, raised=raised))
        except ConnectionError as gone:
            _log.debug("the driver is gone: %s", gone)

    def raise_if_failing(self) -> None:
        """Raise PublishError once `max_publish_failures` saves in a row have failed."""
        if self._failures_in_row >= max(self._job.max_publish_failures, 1):
            why = "" if self._last_failure is None else message_of(self._last_failure)
            raise PublishError(
                f"{self._failures_in_row} checkpoints in a row were not saved; the last one: {why}"
            ) from self._last_failure

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is on its way; False if that took longer than `timeout` seconds."""
        return self._idle is None or self._idle.wait(timeout)

    def close(self) -> None:
        """Publish what is on its way, end the thread, remove what was staged and never reported."""
        self.wait()
        if self._thread is not None:
            self._todo.put(None)
            self._thread.join()
            self._thread = None
        self.abandon()

    def abandon(self) -> None:
        """Remove everything staged that is not published, without waiting for it. From any thread."""
        for staged in list(self._open):
            staged.abandoned = True
            self.drop(staged)

    def _opened(self, staged: Staged) -> Staged:
        self._open.add(staged)
        return staged

    def _publisher(self, idle: threading.Event) -> None:
        while (task := self._todo.get()) is not None:
            try:
                self._publish(task)
            except ConnectionError as error:
                _log.debug("the driver is gone: %s", error)
            except (CheckpointError, OSError) as error:
                self.failed(task.ref, error)
            except Exception as error:
                _log.error("publishing %s met a bug", task.ref.name, exc_info=error)
                self.failed(task.ref, error)
            finally:
                self.drop(task.staged)  # not there any more once it is published
                if task.staged.abandoned:  # while a file was being added to it, which may have kept its directory
                    fs.remove_quietly(task.staged.path)
                idle.set()

    def _publish(self, task: _Task) -> None:
        staged, ref = task.staged, task.ref
        prepared = publish.prepare(
            staged.path, ref=ref, metrics=task.metrics, created=self._clock.time(), extra=staged.extra
        )
        if self.published is None:
            fs.fsync_dir(self._job.directory.parent)  # the trial's own directory, before anything in it counts
        self._link.wait_durable(ref.iteration)  # no checkpoint is ever ahead of the journal
        with self._committing:  # `abandon` removes the files before this, or comes too late to touch them
            if staged not in self._open:
                return
            done = publish.commit(prepared, self._job.directory / ref.name)
            self._open.discard(staged)
        self.published = done.path
        self._failures_in_row = 0
        self.before_published()
        self._link.post(SavePublished(ref=ref, bytes=done.manifest.bytes, digest=done.digest))
