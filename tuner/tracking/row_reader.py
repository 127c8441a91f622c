"""Reads a trial's `result.json` on: the queue of its tracker lies on the disk, and takes no memory."""

from __future__ import annotations

import os
from pathlib import Path

from trainables.result_history import missing_row, read_line
from tuner.tracking.tracker import Row


class RowReader:
    """Remembers how far it has read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def rewind(self) -> None:
        """The file has been cut, or is to be read from its beginning."""
        self._offset = 0

    def read(self, after: int, until: int, *, limit: int, limit_bytes: int) -> tuple[list[Row], int]:
        """(the next rows of iterations beyond `after`, up to `until`; the last iteration that was passed).

        A line that is not whole yet ends it: it will be there another time. Of one that says that its result is
        missing, or is damaged, only the place is passed.
        """
        rows: list[Row] = []
        passed, taken = after, 0
        try:
            file = open(self._path, "rb")
        except FileNotFoundError:
            return rows, passed
        with file:
            if os.fstat(file.fileno()).st_size < self._offset:
                self._offset = 0
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n") or len(rows) >= limit or taken >= limit_bytes:
                    break
                row = _row(line)
                iteration = row.get("training_iteration") if row else None
                if isinstance(iteration, int) and iteration > until:
                    break
                self._offset += len(line)
                if row is None or not isinstance(iteration, int) or iteration <= passed:
                    continue
                passed = iteration
                if row != missing_row(iteration):
                    rows.append((iteration, row))
                    taken += len(line)
        return rows, passed


def _row(line: bytes) -> dict[str, object] | None:
    try:
        row = read_line(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None
