"""One column of a table: numbers as numbers, eight bytes each, until something else stands in it."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

_EXACT = 2**53
"""Whole numbers up to that are floats too."""
ABSENT = math.nan


class Column:
    """Values of the rows of a table, by position; one that was never set is absent.

    Args:
        rows: as many are absent to begin with.
    """

    def __init__(self, rows: int = 0) -> None:
        self._numbers: array[float] | None = array("d", [ABSENT]) * rows
        self._values: list[Any] = []
        self._whole = True
        self._seen: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._values) if self._numbers is None else len(self._numbers)

    @property
    def is_numeric(self) -> bool:
        """Nothing but numbers has ever stood in it."""
        return self._numbers is not None

    @property
    def is_whole(self) -> bool:
        """Of a numeric one: nothing but whole numbers."""
        return self._whole

    def extend_to(self, rows: int) -> None:
        """Absent values at its end, up to that length."""
        more = rows - len(self)
        if more <= 0:
            return
        if self._numbers is None:
            self._values.extend([None] * more)
        else:
            self._numbers.extend(array("d", [ABSENT]) * more)

    def set(self, row: int, value: Any) -> None:
        """Put a value into a row, which may be one beyond the last; None: absent."""
        self.extend_to(row + 1)
        if self._numbers is not None:
            kind = type(value)
            if value is None:
                self._numbers[row] = ABSENT
                return
            if kind is float or (kind is int and -_EXACT <= value <= _EXACT):
                self._numbers[row] = value
                self._whole = self._whole and (kind is int or value != value)
                return
            self._values = self._listed(self._numbers)
            self._numbers = None
        if type(value) is str:
            value = self._seen.setdefault(value, value) if len(self._seen) < 1000 else value
        elif type(value) is float and not math.isfinite(value):
            value = None
        self._values[row] = value

    def _listed(self, numbers: Sequence[float]) -> list[Any]:
        if self._whole:
            return [None if value != value else int(value) for value in numbers]
        return [value if math.isfinite(value) else None for value in numbers]

    def get(self, row: int) -> Any:
        """None: absent."""
        if row >= len(self):
            return None
        if self._numbers is None:
            return self._values[row]
        value = self._numbers[row]
        return None if not math.isfinite(value) else int(value) if self._whole else value

    def numbers(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """A copy as floats; NaN where there is no number."""
        if self._numbers is not None:
            return np.array(self._numbers, dtype=np.float64)
        plain = (value if type(value) in (int, float) else ABSENT for value in self._values)
        return np.fromiter(plain, dtype=np.float64, count=len(self._values))

    @property
    def is_empty(self) -> bool:
        """No row has a value."""
        if self._numbers is None:
            return all(value is None for value in self._values)
        return bool(np.isnan(np.array(self._numbers)).all())

    def first(self, rows: int) -> Column:
        """A column of its first rows."""
        made = Column()
        made._whole, made._numbers = self._whole, None if self._numbers is None else self._numbers[:rows]
        made._values = self._values[:rows]
        made.extend_to(rows)
        return made

    def all(self) -> Any:
        """All of them, for `as_json`."""
        if self._numbers is None:
            return list(self._values)
        if self._whole and len(self._numbers):
            found = np.array(self._numbers)
            if not np.isnan(found).any():
                return found.astype(np.int64)
            return [None if value != value else int(value) for value in self._numbers]
        return np.array(self._numbers)

    def some(self, rows: Sequence[int]) -> list[Any]:
        """Those of these rows."""
        return [self.get(row) for row in rows]


class ColumnSet:
    """Columns under names, of one length."""

    def __init__(self) -> None:
        self.columns: dict[str, Column] = {}

    def put(self, row: int, values: dict[str, Any]) -> None:
        """What stands in a row from now on; names that are not in it are absent there."""
        for name, column in self.columns.items():
            if name not in values and column.get(row) is not None:
                column.set(row, None)
        for name, value in values.items():
            if name not in self.columns:
                self.columns[name] = Column()
            self.columns[name].set(row, value)

    def first(self, rows: int) -> ColumnSet:
        """Columns of its first rows."""
        made = ColumnSet()
        made.columns = {name: column.first(rows) for name, column in self.columns.items()}
        return made

    def drop_empty(self) -> None:
        """Forget the columns in which no row has a value."""
        self.columns = {name: column for name, column in self.columns.items() if not column.is_empty}

    def all(self, rows: int) -> dict[str, Any]:
        for column in self.columns.values():
            column.extend_to(rows)
        return {name: column.all() for name, column in self.columns.items()}

    def some(self, rows: Sequence[int]) -> dict[str, list[Any]]:
        return {name: column.some(rows) for name, column in self.columns.items()}
