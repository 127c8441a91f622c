"""Numbers and durations as people read them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

_TAIL = 4096


def duration(seconds: float) -> str:
    """
    >>> duration(4.25), duration(75), duration(7325)
    ('4.2 s', '1:15 min', '2:02 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"


def counted(number: int, noun: str) -> str:
    """
    >>> counted(1, "trial"), counted(0, "trial"), counted(100_000_000, "trial")
    ('1 trial', '0 trials', '100,000,000 trials')
    """
    return f"{number} {noun}" if number == 1 else f"{grouped(number)} {noun}s"


def grouped(number: int) -> str:
    """A count as it is read: what has more than four digits in groups of three.

    >>> grouped(1200), grouped(100_000_000)
    ('1200', '100,000,000')
    """
    return f"{number:,}" if number >= 10_000 else str(number)


def size(number: float) -> str:
    """
    >>> size(512), size(1_234_567)
    ('512 B', '1.2 MB')
    """
    if number < 1000:
        return f"{number:.0f} B"
    for unit in ("kB", "MB", "GB"):
        number /= 1000
        if number < 1000:
            return f"{number:.1f} {unit}"
    return f"{number / 1000:.1f} TB"


def value(thing: Any, limit: int = 20) -> str:
    """One cell of a table.

    >>> value(0.123456789), value(None), value(True), value("x" * 30, limit=10)
    ('0.12346', '', 'True', 'xxxxxxx...')
    """
    if thing is None:
        return ""
    text = f"{thing:.5g}" if type(thing) is float else str(thing)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: max(limit - 3, 0)] + "..."


def last_line(files: Iterable[Path]) -> str:
    """The last line that was written to the newest of these files; "" when there is none."""
    newest: tuple[float, Path] | None = None
    for file in files:
        try:
            status = file.stat()
        except OSError:
            continue
        if status.st_size and (newest is None or status.st_mtime > newest[0]):
            newest = (status.st_mtime, file)
    if newest is None:
        return ""
    try:
        with open(newest[1], "rb") as opened:
            opened.seek(0, 2)
            opened.seek(max(0, opened.tell() - _TAIL))
            tail = opened.read(_TAIL)
    except OSError:
        return ""
    lines = tail.decode("utf-8", "replace").split("\n")
    return next((line.strip()[-160:] for line in reversed(lines) if line.strip()), "")
