"""`progress.csv`: a trial's results as a table."""

from __future__ import annotations

import contextlib
import csv
import io
import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trainables import tagged
from trainables.result_history import flatten, read_history
from trainables.store import fs
from tuner.experiment.paths import TrialPaths
from tuner.experiment.standing import StandingResult
from tuner.experiment.trial import Trial
from tuner.logger.rows import RowFile, RowLogger

log = logging.getLogger(__name__)

MAX_WIDENINGS = 32
"""How often a file is written anew with more columns; a trial that invents a key per result would pay quadratically."""

LONGEST = 100_000
"""Characters of a cell: Python's own reader refuses those of 128 KiB, and nobody reads them."""
_LONG = frozenset({str, bytes, bytearray, list, tuple, dict, set, frozenset})


def _cell(value: Any) -> Any:
    if len(value) > LONGEST or (type(value) is not str and len(value) > 1000 and len(str(value)) > LONGEST):
        return f"<{type(value).__name__} of {len(value)}: in result.json>"
    return value


class _Encoder:
    """Makes lines of a table; it is what its csv writer writes to."""

    def __init__(self) -> None:
        self._text = ""
        self._writer = csv.writer(self)  # its own line end makes it quote both characters of it

    def write(self, text: str) -> int:
        self._text = text
        return len(text)

    def encode(self, values: Iterable[Any]) -> bytes:
        """One row of values; of one that no cell of a table is for, what it is."""
        self._writer.writerow([_cell(value) if type(value) in _LONG else value for value in values])
        return self._text[:-2].encode("utf-8", "backslashreplace") + b"\n"


class CsvFile(RowFile):
    """A `RowFile` that knows its columns."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.header: tuple[str, ...] = ()
        if self._size:
            with open(path, newline="", encoding="utf-8", errors="replace") as file:
                self.header = tuple(next(csv.reader(file), ()))
        self.widenings = 0
        self.encode = _Encoder().encode


class CSVLoggerCallback(RowLogger):
    """Writes every result as one row of `progress.csv`, nested keys as columns `a/b`.

    The columns are those of the first result; when a later one has new keys, the file is written anew with more
    columns, once per set of keys.
    """

    def _path(self, trial: Trial) -> Path:
        return TrialPaths(trial.directory).progress_csv

    def _opened(self, path: Path) -> RowFile:
        return CsvFile(path)

    def _row(self, file: RowFile, trial: Trial, result: dict[str, Any]) -> bytes | None:
        assert isinstance(file, CsvFile)
        if dict in map(type, result.values()):
            result = flatten(result)
        header = file.header
        if tuple(result) == header:  # what nearly every result is
            return file.encode(result.values())
        if not header:
            file.header = tuple(result)
            file.head = file.encode(file.header)
            return file.encode(result.values())
        new = [key for key in result if key not in header]
        if new and file.widenings >= MAX_WIDENINGS:
            if file.widenings == MAX_WIDENINGS:
                file.widenings += 1
                log.warning("%s gets no more columns: the keys change all the time; result.json has all", file.path)
        elif new:
            file = self._widen(file, trial, (*header, *new))
        return file.encode([result.get(key) for key in file.header])

    def _widen(self, file: CsvFile, trial: Trial, header: tuple[str, ...]) -> CsvFile:
        """Write the file anew with more columns, beside the old one, which then is replaced."""
        fresh = _beside(file.path)
        with contextlib.suppress(OSError):  # then it is in `late`
            file.write_out()
        text = (fs.read_file(file.path) + file.late).decode("utf-8", "backslashreplace")
        rows = csv.reader(io.StringIO(text, newline=""))
        next(rows, None)
        empty = [""] * (len(header) - len(file.header))
        lines = [file.encode(header), *(file.encode([*row, *empty]) for row in rows if row)]
        fs.write_file(fresh, b"".join(lines), fsync=False)
        fs.rename(fresh, file.path)
        file.late = b""  # it is in there
        file.close()
        wide = CsvFile(file.path)
        wide.widenings, wide.iteration, wide.done = file.widenings + 1, file.iteration, file.done
        self._files[trial.trial_id] = wide
        return wide

    def _complete(self, trial: Trial, standing: StandingResult) -> list[int]:
        path = self._path(trial)
        if fs.exists(_beside(path)):
            fs.unlink(_beside(path))
        data = fs.read_file(path) if fs.exists(path) else b""
        header, *rows = [row for row, _ in _rows(data[: data.rfind(b"\n") + 1])] or [[]]
        column = header.index("training_iteration") if "training_iteration" in header else len(header)
        own = {reached: row for row in rows if (reached := _reached(row, column)) <= standing.doubtful_after}
        own.pop(math.inf, None)
        whole = data.endswith(b"\n") and len(own) == len(rows)
        if whole and own.keys() >= standing.results.keys():
            return []
        known: dict[Any, dict[str, Any]] = {
            reached: dict(zip(header, row, strict=False)) for reached, row in own.items()
        }
        history = read_history(TrialPaths(trial.directory).result_json)
        known.update((row["training_iteration"], row) for row in history if "training_iteration" in row)
        for iteration, raw in standing.results.items():
            known.setdefault(iteration, tagged.loads(bytes(raw)))
        fs.replace_file(path, _table(row for _, row in sorted(known.items())))
        return []

    def _end(self, data: bytes, iteration: int) -> int:
        end, whole = 0, data.rfind(b"\n") + 1
        column = None
        for row, after in _rows(data[:whole]):
            if column is None:
                if "training_iteration" not in row:
                    return whole  # nothing to go by
                column = row.index("training_iteration")
            elif row and _reached(row, column) > iteration:
                break
            end = after
        return end


def _beside(path: Path) -> Path:
    """Where the file is written anew."""
    return path.with_name(f".{path.name}.tmp")


def _table(results: Iterable[Mapping[str, Any]]) -> bytes:
    """Results as the content of a file."""
    rows = [flatten(result) for result in results]
    header = list(dict.fromkeys(key for row in rows for key in row))
    encode = _Encoder().encode
    lines = [encode(header), *(encode(map(row.get, header)) for row in rows)]
    return b"".join(lines) if rows else b""


def _rows(data: bytes) -> Iterator[tuple[list[str], int]]:
    """(row, offset of its end): a quoted value may hold newlines."""
    read = 0

    def lines() -> Iterator[str]:
        nonlocal read
        for line in data.splitlines(keepends=True):
            read += len(line)
            yield line.decode("utf-8", "replace")

    for row in csv.reader(lines()):
        yield row, read


def _reached(row: list[str], column: int) -> float:
    try:
        return float(row[column])
    except (ValueError, IndexError):
        return float("inf")  # a damaged row goes, and what comes after it
