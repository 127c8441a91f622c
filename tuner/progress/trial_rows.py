"""The rows of the live view, cut to the columns of a screen: what matters most is cut last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from trainables.quick_dataclass import dataclass
from tuner.progress.encoding import escaped

GAP = 2
LONGEST_NAME = 16
"""Characters of a heading at most."""
ENDLESS = 10**9
"""Columns of what is no screen."""
STATE_SHARE = 0.3
"""Of the width, for the state and its reason, as long as parameters want room too."""


@dataclass(frozen=True, slots=True)
class TrialRow:
    """What is shown of one trial, as text."""

    number: str
    """From 0, as `tuner show EXPERIMENT NUMBER` takes it."""
    metric: str
    """Its last value; "" when there is none."""
    iteration: str
    time: str
    state: str
    """A word: running, waiting, paused, done, failed."""
    standing: str
    """The same with the reason: why it ended or waits, or that it is silent."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Others that it reported."""

    def within(self, encoding: str) -> TrialRow:
        """The same with escapes for what an encoding lacks."""

        def each(named: Mapping[str, str]) -> dict[str, str]:
            return {escaped(key, encoding): escaped(value, encoding) for key, value in named.items()}

        return replace(
            self,
            metric=escaped(self.metric, encoding),
            standing=escaped(self.standing, encoding),
            parameters=each(self.parameters),
            metrics=each(self.metrics),
        )


@dataclass(frozen=True, slots=True)
class FittedRows:
    """Cells that fit into a width, and for each row the state that colours it."""

    header: list[str]
    rows: list[list[str]]
    states: list[str]
    right: frozenset[int]
    """Columns of numbers."""


def cut(text: str, room: int) -> str:
    """
    >>> cut("abcdef", 4), cut("abc", 4)
    ('abc…', 'abc')
    """
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= room else set_cell_size(text, max(room - 1, 0)) + "…"


def room_of(cells: Iterable[str]) -> int:
    """Columns of the widest of them on a screen: a Chinese sign takes two."""
    from rich.cells import cell_len

    return max(map(cell_len, cells), default=0)


def by_difference(rows: Iterable[TrialRow]) -> list[str]:
    """The parameters of these trials, those with the most different values first."""
    values: dict[str, set[str]] = {}
    for row in rows:
        for key, value in row.parameters.items():
            values.setdefault(key, set()).add(value)
    return sorted(values, key=lambda key: -len(values[key]))


def fitted(rows: Sequence[TrialRow], metric: str | None, given: int | None) -> FittedRows:
    """The table of these rows in at most `given` columns; None: nothing is cut or left out.

    The metric is never cut; then come iteration, time and state with its reason; then as many parameters as fit, those
    that differ most first, and how many did not ("+3"); then other metrics, where there is room.
    """
    width, name_room = (ENDLESS, ENDLESS) if given is None else (given, LONGEST_NAME)
    columns: list[tuple[str, list[str]]] = [("#", [row.number for row in rows])]
    if metric is not None:
        values = [row.metric for row in rows]
        longest = max(name_room, room_of(values))
        columns.append((cut(metric, longest), values))
    columns += [("iter", [row.iteration for row in rows]), ("time", [row.time for row in rows])]
    numbers = len(columns)
    states = [row.standing for row in rows]
    least_state = room_of(["state", *(row.state for row in rows)])
    full_state = max(least_state, room_of(states))
    left = width - sum(_width(column) + GAP for column in columns)
    state_room = max(min(full_state, int(width * STATE_SHARE)), least_state)
    left -= state_room
    keys = by_difference(rows)
    shown = [_column(name_room, key, [row.parameters.get(key, "") for row in rows]) for key in keys]
    fit = _as_many_as_fit(shown, left)
    extra = shown[:fit]
    if fit < len(shown):
        extra.append((f"+{len(shown) - fit}", [""] * len(rows)))
    else:
        others = dict.fromkeys(key for row in rows for key in row.metrics)
        more = [_column(name_room, key, [row.metrics.get(key, "") for row in rows]) for key in others]
        left_for_others = left - (full_state - state_room) - sum(_width(column) + GAP for column in extra)
        extra += more[: _as_many_as_fit(more, left_for_others, marked=False)]
    left -= sum(_width(column) + GAP for column in extra)
    state_room = max(min(full_state, state_room + left), 1)
    columns.append(("state", [cut(state, state_room) for state in states]))
    columns += extra
    header = [name for name, _ in columns]
    cells = [list(row) for row in zip(*(values for _, values in columns), strict=True)]
    return FittedRows(header, cells, [row.state for row in rows], frozenset(range(numbers)))


def _column(room: int, key: str, values: list[str]) -> tuple[str, list[str]]:
    return cut(key, room), [cut(value, room) for value in values]


def _width(column: tuple[str, list[str]]) -> int:
    return room_of([column[0], *column[1]])


def _as_many_as_fit(columns: Sequence[tuple[str, list[str]]], room: int, *, marked: bool = True) -> int:
    """How many of these columns, from the first; with room for "+N" after them if not all."""
    needed = [_width(column) + GAP for column in columns]
    if sum(needed) <= room:
        return len(columns)
    room -= len(f"+{len(columns)}") + GAP if marked else 0
    count = 0
    while count < len(needed) and needed[count] <= room:
        room -= needed[count]
        count += 1
    return count
