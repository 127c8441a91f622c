"""Values and tables as the command line shows them: plain text, the same in a terminal and in a pipe."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainables import tagged


def value(thing: Any) -> str:
    """One value, short."""
    if thing is None:
        return "-"
    if isinstance(thing, float):
        return f"{thing:.5g}"
    if isinstance(thing, Mapping):
        return " ".join(f"{key}={value(inner)}" for key, inner in thing.items()) or "-"
    return str(thing)


def size(number: float) -> str:
    """Bytes for people.

    >>> size(1234567)
    '1.2 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Columns as wide as their widest cell."""
    cells = [list(header), *([value(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join(lines)


def as_json(thing: Any) -> str:
    """For programs. What JSON has not is written with the tags of `trainables.tagged`; nothing is unpickled."""
    return json.dumps(json.loads(tagged.dumps(thing)), indent=2, sort_keys=True)
