"""Answers in pages: a part, and a cursor that asks for the next one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tuner.error import ToolError

USUAL, MOST = 10, 50
"""Rows of a page: as many as nothing is said of it, and at most."""

Row = TypeVar("Row")


class Page:
    """One page.

    Args:
        cursor: what the page before it ended with; "": the first. Raises ToolError for one that no page ends with.
        limit: rows.
    """

    def __init__(self, cursor: str = "", limit: int = USUAL) -> None:
        if cursor and not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 16):
            raise ToolError(f"cursor={cursor!r:.80} is not accepted; accepted is what an answer had as its cursor")
        self.start, self.limit = int(cursor or 0), limit

    def of(self, rows: Sequence[Row]) -> tuple[Sequence[Row], str | None]:
        """The rows of this page, and the next cursor; None: these are the last.

        >>> Page("2", 2).of("abcde"), Page("4", 2).of("abcde")
        (('cd', '4'), ('e', None))
        """
        end = self.start + self.limit
        return rows[self.start : end], str(end) if end < len(rows) else None

    def text(self, text: str, room: int) -> tuple[str, str | None]:
        """The same of a text, whose pages have so many characters."""
        end = self.start + room
        return text[self.start : end], str(end) if end < len(text) else None
