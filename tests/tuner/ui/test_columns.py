"""A column gives back what was put into it, as JSON has it, whatever its values are."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tuner.ui.columns import Column, ColumnSet
from tuner.ui.seen import as_json

NUMBERS = st.one_of(st.floats(), st.integers(-(2**53), 2**53), st.none())
VALUES = st.one_of(NUMBERS, st.text(max_size=5), st.booleans(), st.integers(2**60, 2**70))


def plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


@given(st.one_of(st.lists(NUMBERS, max_size=20), st.lists(VALUES, max_size=20)), st.data())
def test_what_is_put_is_what_is_served(values: list[Any], data: st.DataObject) -> None:
    column = Column()
    for row, value in enumerate(values):
        column.set(row, value)
    if values:
        row = data.draw(st.integers(0, len(values) - 1))
        values[row] = data.draw(VALUES)
        column.set(row, values[row])
    wanted = [plain(value) for value in values]
    assert column.some(range(len(values))) == wanted
    assert json.loads(as_json(column.all())) == wanted
    numbers = [value if type(value) in (int, float) else None for value in wanted]
    assert [None if not math.isfinite(found) else found for found in column.numbers()] == [
        None if value is None else float(value) for value in numbers
    ]


@given(st.lists(st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3), max_size=12))
def test_columns_are_of_one_length(rows: list[dict[str, Any]]) -> None:
    table = ColumnSet()
    for row, values in enumerate(rows):
        table.put(row, values)
    served = json.loads(as_json(table.all(len(rows))))
    assert all(len(column) == len(rows) for column in served.values())
    for name, column in served.items():
        assert column == [plain(values.get(name)) for values in rows]
