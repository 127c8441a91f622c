"""`Delivery`: brings what is due to a tracker, each (run, step) once. It knows no threads and no clock."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainables.errors import CheckpointError
from tuner.experiment.paths import TrialPaths
from tuner.tracking.due import About, Due, SaveDue
from tuner.tracking.mark import Mark, mark_path, read_mark, write_mark
from tuner.tracking.row_reader import RowReader
from tuner.tracking.tracker import OpenRun, Row, RunEnding, TrackedRun, Tracker

log = logging.getLogger(__name__)

MAX_OPEN = 64
"""Runs that stay open: those of running trials, and of some paused ones."""
AT_ONCE, BYTES_AT_ONCE = 200, 4 << 20
"""Results, and bytes of them, that are in memory and in one call of the library."""


@dataclass(slots=True)
class _Line:
    """What is held of a trial while something is due for it."""

    path: Path
    mark: Mark
    rows: RowReader
    open: OpenRun | None = None


class Delivery:
    """Delivers to one tracker.

    The order of a delivery is what makes it exact: the run is opened first, since only the tracker knows what it has
    of what a killed driver had given to its library; what it has beyond the place that the trial went back to makes
    another run; then results go in order, and the mark follows.

    Args:
        hold_back: results that were sent are never void, but when a trial that had ended is continued.
        shape: makes of a result what is sent of it.
    """

    def __init__(
        self, tracker: Tracker, *, hold_back: bool, shape: Callable[[dict[str, Any]], dict[str, Any]] = dict
    ) -> None:
        self._tracker, self._hold_back, self._shape = tracker, hold_back, shape
        self._lines: dict[str, _Line] = {}

    def deliver(self, due: Due) -> bool:
        """Send what is due. False: results are not in the trial's file yet, and the rest waits for them.

        What the library or the disk raises goes through; all of it may be done again.
        """
        line = self._lines.get(due.about.trial_id) or self._line(due.about)
        try:
            if self._is_done(line, due):
                self._lines.pop(due.about.trial_id, None)
                return True
            opened = self._opened(line, due)
            arrived = self._change_config(line, opened, due) and self._send_rows(line, opened, due.covered)
            self._save(line, opened, due.saves)
            if due.ending is not None and (arrived or due.ending is RunEnding.UNFINISHED):
                self._close(due.about.trial_id, line, due.ending)
            return arrived
        except BaseException:
            line.rows.rewind()
            raise

    def lacking(self, due: Due) -> int:
        """How many results of it were not sent, as far as is known."""
        line = self._lines.get(due.about.trial_id) or self._line(due.about)
        return max(due.covered - line.mark.sent, 0)

    # --- opening ----------------------------------------------------------------------------------------

    def _line(self, about: About) -> _Line:
        path = mark_path(about.directory, self._tracker.name, self._tracker.destination)
        return _Line(path, read_mark(path), RowReader(TrialPaths(about.directory).result_json))

    def _is_done(self, line: _Line, due: Due) -> bool:
        """Nothing has to be opened for it: at a resume that is said of all trials that had been closed."""
        mark = line.mark
        if line.open is not None or due.standing is not None:
            return False
        if due.ending is RunEnding.UNFINISHED and not mark.run_id and not due.covered:
            return True  # it never had a result: nobody misses it
        known = mark.sent if self._tracker.keeps_at_once else mark.safe
        closed = due.ending is None or mark.ended == due.ending.value
        return bool(mark.run_id) and closed and known >= due.covered and not self._new(line, due.saves)

    def _opened(self, line: _Line, due: Due) -> OpenRun:
        if line.open is None:
            self._make_room(due.about.trial_id)
            self._open(line, due.about)
        if due.standing is not None:
            if line.mark.sent > due.standing:
                self._go_back(line, due.about, due.standing)
            line.mark.ended = ""
            due.standing = None  # done, also if what follows is to be tried again
        assert line.open is not None
        return line.open

    def _change_config(self, line: _Line, opened: OpenRun, due: Due) -> bool:
        """Tell of a clone's new config, after the results that it had with the old one. False: these are not there."""
        if due.cloned_at is None:
            return True
        if not self._send_rows(line, opened, due.cloned_at):
            return False
        opened.run = replace(opened.run, config=due.about.config)
        self._tracker.update_config(opened, due.about.config, due.cloned_at)
        due.cloned_at = None
        return True

    def _open(self, line: _Line, about: About) -> None:
        mark = line.mark
        run = TrackedRun(
            trial_id=about.trial_id,
            name=about.name if mark.number == 1 else f"{about.name} ({mark.number})",
            experiment=about.directory.parent.name,
            directory=about.directory,
            config=about.config,
            evaluated=about.evaluated,
            number=mark.number,
            run_id=mark.run_id,
            sent=mark.sent,
            safe=mark.safe,
        )
        line.open = self._tracker.open(run)
        if line.open.reached is not None and line.open.reached != mark.sent:
            mark.sent = line.open.reached
            line.rows.rewind()
        mark.run_id = line.open.run_id
        self._lines[about.trial_id] = line
        write_mark(line.path, mark)

    def _go_back(self, line: _Line, about: About, standing: int) -> None:
        """What was sent beyond `standing` is void."""
        line.rows.rewind()
        if not self._hold_back:
            line.mark.sent = standing
            line.mark.safe = min(line.mark.safe, standing)
            return
        assert line.open is not None
        log.info("%s: %s goes on in another run, with what stands of it", self._tracker.name, about.name)
        opened, line.open = line.open, None
        self._tracker.close(opened, RunEnding.SUPERSEDED)
        line.mark = Mark(number=line.mark.number + 1, saved=line.mark.saved)
        write_mark(line.path, line.mark)
        self._open(line, about)

    def _make_room(self, wanted: str) -> None:
        """Let go of the run that has been open longest; `wanted` is opened next."""
        held = [trial_id for trial_id, line in self._lines.items() if line.open is not None and trial_id != wanted]
        if len(held) >= MAX_OPEN:
            self._close(held[0], self._lines[held[0]], RunEnding.UNFINISHED)

    # --- sending ----------------------------------------------------------------------------------------

    def _send_rows(self, line: _Line, opened: OpenRun, covered: int) -> bool:
        mark = line.mark
        while mark.sent < covered:
            rows, passed = line.rows.read(mark.sent, covered, limit=AT_ONCE, limit_bytes=BYTES_AT_ONCE)
            if passed <= mark.sent:
                return False
            shaped: list[Row] = [(iteration, self._shape(row)) for iteration, row in rows]
            try:
                self._tracker.send(opened, shaped)
            except BaseException:
                if opened.given > mark.sent:
                    self._sent(line, opened.given)
                raise
            self._sent(line, passed)
        return True

    def _sent(self, line: _Line, reached: int) -> None:
        line.mark.sent = reached
        if self._tracker.keeps_at_once:
            line.mark.safe = reached
        write_mark(line.path, line.mark)

    def _new(self, line: _Line, saves: Sequence[SaveDue]) -> list[SaveDue]:
        return [save for save in saves if save.number > line.mark.saved]

    def _save(self, line: _Line, opened: OpenRun, saves: Sequence[SaveDue]) -> None:
        for save in self._new(line, saves):
            try:
                with save.checkpoint.as_directory() as directory:
                    self._tracker.save(opened, directory, save.iteration)
            except CheckpointError as error:
                log.info("%s: %s", self._tracker.name, error)  # it has been evicted since
            line.mark.saved = save.number
            write_mark(line.path, line.mark)

    def _close(self, trial_id: str, line: _Line, ending: RunEnding) -> None:
        if line.open is not None:
            self._tracker.close(line.open, ending)
        line.open = None
        line.mark.safe, line.mark.ended = line.mark.sent, ending.value
        write_mark(line.path, line.mark)
        self._lines.pop(trial_id, None)
