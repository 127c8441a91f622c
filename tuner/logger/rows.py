"""Append-only result files with a row per result, and the base of the loggers that write them.

A row is given to the operating system before its result is journaled, with the others of its file that came in the
same turn of the loop (`gather`): a driver that is killed leaves the rows of all journaled results behind, and the next
one cuts what is beyond the checkpoint that the trial goes back to. After a power cut, which may take or damage rows
that were never synced, the next one puts them back from the journal; what a snapshot dropped from it was made durable
here before.
"""

from __future__ import annotations

import abc
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from trainables.store import fs
from tuner.callback import Callback, Trials
from tuner.experiment.standing import StandingResult
from tuner.experiment.trial import Trial
from tuner.logger.base import LoggerCallback

log = logging.getLogger(__name__)

LATE_LIMIT = 1 << 20
"""Bytes of rows that are kept in memory, per file, while a disk is full."""
_GATHERED = 1 << 16
"""Bytes of rows, about, from which on they do not wait for the end of the turn."""
MAX_OPEN = 64
"""Files that stay open: those of running trials, and of some paused ones."""


class RowFile:
    """An append-only file. A row is in it whole or not at all; what the disk refused is tried again with the next."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.iteration = 0
        """Of the last row."""
        self.done = False
        """Whether the last row says that the trial is done."""
        self._fd = fs.open_append(path)
        self._size = fs.size(path)
        self._last = 0
        self._gathered: list[bytes] = []
        """What is to be handed to the system with the next write."""
        self.late = b""
        """Rows that the disk refused, to be tried again."""
        self.head = b""
        """What is to stand before the next row, and is none."""

    def append(self, row: bytes) -> None:
        """Raises OSError when the disk refuses; then the row is in memory and will be tried again."""
        self.add(row)
        self.write_out()

    def add(self, row: bytes) -> bool:
        """The same with the next `write_out`; True: it is time for that."""
        self._gathered.append(self.head + row if self.head else row)
        self.head = b""
        self._last = len(row)
        return len(self._gathered) * self._last > _GATHERED

    def write_out(self) -> None:
        """Hand to the system what was added. Raises as `append`."""
        data = b"".join((self.late, *self._gathered))
        self._gathered.clear()
        if not data:
            return
        try:
            fs.write(self._fd, data)
        except OSError:
            if len(data) <= LATE_LIMIT:
                self.late = data
            fs.truncate(self.path, self._size)  # no half row stays
            raise
        self.late = b""
        self._size += len(data)

    def replace_last(self, row: bytes) -> None:
        """Write the last row anew, in place, so that it is there at every instant. It must not be longer."""
        old, self._last = self._last, len(row)
        if self._gathered:
            self._gathered[-1] = self._gathered[-1][: -old or None] + row
            return
        if self.late or not old or len(row) > old:
            return
        fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)  # the other one appends, wherever it is told to write
        try:
            os.pwrite(fd, row.ljust(old, b"\n"), self._size - old)
        finally:
            os.close(fd)
        self._size -= old - len(row)
        fs.truncate(self.path, self._size)

    def close(self) -> None:
        """Raises OSError when the disk still refuses what it refused before; the file is closed all the same."""
        try:
            self.write_out()
        finally:
            fs.close(self._fd)


class RowLogger(LoggerCallback):
    """Base of the loggers that write one row per result into a file of the trial. Never ends a run: it warns."""

    changes_results = False

    def __init__(self) -> None:
        self._files: dict[str, RowFile] = {}
        self._warned: set[int | None] = set()
        self.gathers = False
        """Whether rows wait for `write_out`."""
        self._added: set[RowFile] = set()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({"gathers": False, "_added": set(), **state})  # older versions stored neither

    @abc.abstractmethod
    def _path(self, trial: Trial) -> Path:
        """The trial's file."""

    @abc.abstractmethod
    def _end(self, data: bytes, iteration: int) -> int:
        """Where in a file its last whole row up to `iteration` ends."""

    @abc.abstractmethod
    def _row(self, file: RowFile, trial: Trial, result: dict[str, Any]) -> bytes | None:
        """The result as a row; None when it was dealt with."""

    @abc.abstractmethod
    def _complete(self, trial: Trial, standing: StandingResult) -> list[int]:
        """Write the trial's file anew unless it is whole and has a row for each result that stands.

        Returns the iterations of which nobody has the result, each of which got a row that says so.
        """

    def _opened(self, path: Path) -> RowFile:
        return RowFile(path)

    def complete(self, trial: Trial, standing: StandingResult) -> list[int]:
        """Put back rows that a power cut took, or that a replica has only in its journal; as `_complete`."""
        try:
            return self._complete(trial, standing)
        except OSError as error:
            self._complain(self._path(trial), error)
            return []

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        try:
            reached = result.get("training_iteration", 0)
            file = self._files.get(trial.trial_id)
            if file is None or reached <= file.iteration:
                file = self._open(trial, reached - 1)
            row = self._row(file, trial, result)
            file = self._files[trial.trial_id]
            file.iteration, file.done = reached, bool(result.get("done"))
            if row is not None and (file.add(row) or not self.gathers):
                file.write_out()
            elif row is not None:
                self._added.add(file)
        except OSError as error:
            self._complain(self._path(trial), error)

    def write_out(self) -> None:
        """Hand to the system the rows that wait."""
        while self._added:
            file = self._added.pop()
            try:
                file.write_out()
            except OSError as error:
                self._complain(file.path, error)

    def log_trial_rollback(self, trial: Trial, iteration: int) -> None:
        try:
            self._close(trial.trial_id)
            self._cut(self._path(trial), iteration)
        except OSError as error:
            self._complain(self._path(trial), error)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        file = self._files.get(trial.trial_id)
        if file is None:
            return
        try:
            last = trial.last_result
            if not file.done and last.get("done") and last.get("training_iteration") == file.iteration:
                row = self._row(file, trial, last)  # decided after the row was written
                if row is not None:
                    self._files[trial.trial_id].replace_last(row)
        except OSError as error:
            self._complain(self._path(trial), error)
        finally:
            self._close(trial.trial_id)

    def on_experiment_end(self, trials: Trials, **info: Any) -> None:
        for trial_id in list(self._files):
            self._close(trial_id)

    def _cut(self, path: Path, iteration: int) -> None:
        """Cut a torn last row, and all rows after `iteration`, from a file that may not be there."""
        try:
            data = fs.read_file(path)
        except FileNotFoundError:
            return
        end = self._end(data, iteration)
        if end < len(data):
            fs.truncate(path, end)

    def _open(self, trial: Trial, keep: int) -> RowFile:
        """The trial's file, ready for the row after iteration `keep`."""
        self._close(trial.trial_id)
        path = self._path(trial)
        self._cut(path, keep)
        try:
            file = self._opened(path)
        except FileNotFoundError:
            fs.make_dirs(path.parent)
            file = self._opened(path)
        if len(self._files) >= MAX_OPEN:
            self._close(next(iter(self._files)))
        self._files[trial.trial_id] = file
        return file

    def _close(self, trial_id: str) -> None:
        file = self._files.pop(trial_id, None)
        if file is not None:
            self._added.discard(file)
            try:
                file.close()
            except OSError as error:
                self._complain(file.path, error)

    def _complain(self, path: Path, error: OSError) -> None:
        """Once per cause: results are in the journal too, and a log is no reason to end a run."""
        if error.errno in self._warned:
            return
        self._warned.add(error.errno)
        free = fs.free_bytes(path.parent)
        log.warning(
            "cannot write %s: %s (%s bytes free); the run goes on, and rows may be missing there",
            path,
            error.strerror or error,
            "unknown" if free is None else free,
        )


def gather(callbacks: Iterable[Callback]) -> Callable[[], None]:
    """Have rows wait in memory until the function that is returned is called: before results are journaled.

    Not where somebody of the callbacks reads the files while they grow.
    """
    callbacks = list(callbacks)
    loggers = [callback for callback in callbacks if isinstance(callback, RowLogger)]
    for logger in loggers:
        logger.gathers = not any(getattr(callback, "reads_result_json", False) for callback in callbacks)

    def write_out() -> None:
        for logger in loggers:
            logger.write_out()

    return write_out
