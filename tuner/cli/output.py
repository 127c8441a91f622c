"""Output of the command line: values and tables as plain text, in a terminal cut to its width, in a pipe whole."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TextIO

from trainables import tagged
from trainables.printable import one_line, printable
from tuner.error import TuneError
from tuner.progress.encoding import encoding_of, escaped
from tuner.progress.formatting import counted as counted
from tuner.progress.formatting import size as size

GAP = 2
LEAST = 8
"""Characters that a column is cut down to before another one is left out."""


def say(line: str, file: TextIO | None = None) -> None:
    """Print; control characters are escaped, and what the terminal's encoding has not.

    Raises TuneError when the output takes nothing, as a full disk; nothing more is written there then.
    """
    stream = file or sys.stdout
    if stream is None:
        return  # the program was started without
    try:
        print(escaped(printable(line), encoding_of(stream)), file=stream, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # the interpreter flushes once more at its end
        raise TuneError(f"the output cannot be written: {error.strerror}") from error


def complain(verb: str, *lines: object) -> None:
    """Say on standard error what is wrong, with the verb's name before it."""
    for line in lines:
        say(f"tuner {verb}: {value(line)}", sys.stderr)


def value(thing: Any) -> str:
    """One value, short, on one line."""
    if thing is None:
        return "-"
    if isinstance(thing, float):
        return f"{thing:.5g}"
    if isinstance(thing, Mapping):
        return " ".join(f"{value(key)}={value(inner)}" for key, inner in thing.items()) or "-"
    return one_line(str(thing))  # a newline of a config would take the table apart


def time(at: float) -> str:
    """A time, given in seconds since the epoch, as this machine's clock shows it."""
    try:
        return datetime.datetime.fromtimestamp(at).isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):  # no year has it
        return f"{at:g}"


def terminal_width() -> int | None:
    """Columns of the terminal that is printed to; None: it is none, and nothing is cut."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError, AttributeError):
        return None


def wrapped(text: str, width: int | None) -> str:
    """Prose, line by line, broken between words where a line is wider; what follows stands further in.

    Args:
        width: of the terminal; None: nothing is broken, as programs read lines.
    """
    return "\n".join(text.split("\n") if width is None else map(_broken(width), text.split("\n")))


def _broken(width: int) -> Callable[[str], str]:
    def broken(line: str) -> str:
        if len(line) <= width:
            return line
        further = " " * (len(line) - len(line.lstrip()) + 2)
        return textwrap.fill(
            line, width, subsequent_indent=further, break_long_words=False, break_on_hyphens=False, tabsize=4
        )

    return broken


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    width: int | None = None,
    first: Sequence[str] = (),
    whole: Sequence[str] = (),
) -> str:
    """Columns as wide as their widest cell.

    Args:
        header, rows: the cells.
        width: characters that a line has at most: columns are cut, and those that do not fit are left out and named
            below. None: no limit.
        first: columns that matter most, in this order; then the others from the left.
        whole: columns that are left out rather than cut.
    """
    cells = [[value(name) for name in header], *([value(cell) for cell in row] for row in rows)]
    full = [max(len(row[column]) for row in cells) for column in range(len(header))]
    least = [room if name in whole else min(room, LEAST) for name, room in zip(header, full, strict=True)]
    order = [*map(header.index, first), *range(len(header))]
    widths = full if width is None else _fitted(full, least, width, order, len(set(first)))
    shown = [column for column, room in enumerate(widths) if room]
    lines = [
        (" " * GAP).join(_cut(row[column], widths[column]).ljust(widths[column]) for column in shown).rstrip()
        for row in cells
    ]
    hidden = [name for name, room in zip(cells[0], widths, strict=True) if not room]
    if hidden:
        lines += ["", f"(no room for: {', '.join(hidden)})"]
    return "\n".join(lines)


def _fitted(full: Sequence[int], cut: Sequence[int], width: int, order: Iterable[int], first: int) -> list[int]:
    """The room of each column, 0 for those that are left out: taken by `order`, cut to share what there is.

    Args:
        cut: down to how much each.
        first: of `order`, so many are as wide as they want to be before another one gets room.
    """
    widths, left = [0] * len(full), width + GAP
    ordered = list(dict.fromkeys(order))
    for columns in (ordered[:first], ordered[first:]):
        for column in columns:
            # The first one tells the rows apart: it is cut last.
            least = (cut[column] if any(widths) else min(full[column], max(cut[column], width // 2))) + GAP
            if least <= left or not any(widths):
                widths[column] = max(1, min(least, left) - GAP)
                left -= least
        while left > 0 and (short := [column for column, room in enumerate(widths) if 0 < room < full[column]]):
            for column in short[:left]:
                widths[column] += 1
            left -= len(short[:left])
    return widths


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(room - 2, 0)] + ".."[:room]


def told(arguments: argparse.Namespace, text: str, **facts: Any) -> None:
    """Print what was done: in words, or with --json as an object."""
    say(as_json(facts) if arguments.json else text)


def add_json(verb: argparse.ArgumentParser, what: str = "for programs") -> None:
    """The option for programs."""
    verb.add_argument("--json", action="store_true", help=what)


def as_json(thing: Any) -> str:
    """For programs. What JSON has not is written with the tags of `trainables.tagged`; nothing is unpickled."""
    return json.dumps(json.loads(tagged.dumps(thing)), indent=2, sort_keys=True)
