"""The live view: what is drawn of a run in a terminal and in a notebook, as values, and how it looks there."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainables.quick_dataclass import dataclass
from tuner.progress.encoding import escaped
from tuner.progress.trial_rows import GAP, FittedRows, TrialRow, cut, fitted

if TYPE_CHECKING:
    from rich.text import Text

COLOURS = {"running": "cyan", "done": "green", "paused": "yellow", "waiting": "dim", "failed": "red"}
NOTEBOOK_COLUMNS = 160
BAR = 24
"""Columns of the bar at most."""


@dataclass(frozen=True, slots=True)
class HeadLine:
    """A line above the table."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class RunView:
    """One look at a run.

    Args:
        share: how much of it is done, from 0 to 1; None: that is not known.
        head: lines, the first one beside the bar.
        rows: the best trials first.
        failed: trials that failed, apart.
        metric: what the rows are sorted by.
        hidden: trials that have no row.
    """

    share: float | None
    head: Sequence[HeadLine]
    rows: Sequence[TrialRow]
    failed: Sequence[TrialRow] = ()
    metric: str | None = None
    hidden: int = 0

    def rich(self, width: int) -> Any:
        """Head and table, of no line more than `width` columns."""
        from rich.console import Group

        return Group(*self.lines(width), *self.trials(width))

    def lines(self, width: int) -> list[Text]:
        from rich.text import Text

        first, *others = self.head
        bar = _bar(self.share, min(BAR, width // 4))
        bar.append(cut(first.text, width - len(bar)), first.style)
        return [bar, *(Text(cut(line.text, width), line.style, no_wrap=True) for line in others)]

    def trials(self, width: int | None) -> list[Text]:
        """The table, line by line; of any width with None."""
        from rich.text import Text

        if not self.rows and not self.failed:
            return []
        table = fitted([*self.rows, *self.failed], self.metric, width)
        widths = _widths(table)
        drawn = [_row(table, widths, table.header, "bold")]
        for number, cells in enumerate(table.rows):
            drawn.append(_row(table, widths, cells, COLOURS.get(table.states[number], "")))
        if self.hidden:
            drawn.append(Text(f"... and {self.hidden} more"))
        return drawn

    def within(self, encoding: str) -> RunView:
        """The same with escapes for what an encoding lacks."""
        return replace(
            self,
            head=[replace(line, text=escaped(line.text, encoding)) for line in self.head],
            rows=[row.within(encoding) for row in self.rows],
            failed=[row.within(encoding) for row in self.failed],
            metric=None if self.metric is None else escaped(self.metric, encoding),
        )

    def brief(self) -> str:
        return "  ".join(line.text for line in self.head)

    def html(self) -> str:
        """For a notebook: a bar and a table, everything escaped."""
        bar = "" if self.share is None else f'<progress max="100" value="{100 * self.share:.0f}"></progress> '
        head = "".join(f"<div>{bar if not n else ''}{html.escape(each.text)}</div>" for n, each in enumerate(self.head))
        if not self.rows and not self.failed:
            return head
        table = fitted([*self.rows, *self.failed], self.metric, NOTEBOOK_COLUMNS)
        names = "".join(f"<th>{html.escape(cell)}</th>" for cell in table.header)
        rows = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
        more = f"<div>... and {self.hidden} more</div>" if self.hidden else ""
        return f"{head}<table><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table>{more}"

    def plain(self) -> str:
        """As text, for where neither is shown: an exported notebook."""
        told = [line.text for line in self.head]
        return "\n".join([*told, *(line.plain.rstrip() for line in self.trials(NOTEBOOK_COLUMNS))])


def _bar(share: float | None, width: int) -> Text:
    from rich.text import Text

    if share is None or width < 4:
        return Text("", no_wrap=True)
    full = round(share * width)
    return Text.assemble(("█" * full, "green"), ("░" * (width - full), "dim"), " ", no_wrap=True)


def _widths(table: FittedRows) -> list[int]:
    from tuner.progress.trial_rows import room_of

    return [room_of(cells) for cells in zip(table.header, *table.rows, strict=True)]


def _row(table: FittedRows, widths: Sequence[int], cells: Sequence[str], style: str) -> Text:
    from rich.cells import cell_len
    from rich.text import Text

    line = Text("", no_wrap=True)
    for column, (cell, room) in enumerate(zip(cells, widths, strict=True)):
        fill = " " * (room - cell_len(cell))
        coloured = style == "bold" or table.header[column] == "state"
        line.append(fill + cell if column in table.right else cell, style if coloured else "")
        last = column == len(cells) - 1
        line.append(("" if column in table.right or last else fill) + ("" if last else " " * GAP))
    return line
