"""Which files are written to after they were copied."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from tuner.experiment.trial import Trial


def stamps(files: Iterable[Path]) -> Iterator[tuple[str, tuple[int, int]]]:
    """(name, what tells that it was written to) of those of these files that there are."""
    for file in files:
        try:
            status = os.stat(file)
        except OSError:
            continue
        yield file.name, (status.st_size, status.st_mtime_ns)


def mark(directory: Path, names: Iterable[str]) -> int:
    """Another number when one of these files of a directory was written to since."""
    return hash(tuple(stamps(directory / name for name in names)))


class WrittenLater:
    """Trials that have ended, and whose loggers may still write: those with threads of their own do.

    Each is looked at in the second period after its files went there, and at the end of the run.
    """

    def __init__(self) -> None:
        self._now: dict[str, tuple[Trial, int]] = {}
        """Whose files went there in this period, and their mark then."""
        self._before: dict[str, tuple[Trial, int]] = {}

    def sent(self, trial: Trial, marked: int) -> None:
        self._now[trial.trial_id] = trial, marked

    def period(self, *, last: bool) -> list[tuple[Trial, int]]:
        """Those that are to be looked at now, with their marks. `last`: it is the end, all are."""
        looked = {**self._before, **self._now} if last else self._before
        self._before, self._now = {} if last else self._now, {}
        return list(looked.values())
