"""What a test counts while it runs, for the line that `make soak` keeps of it: kills, crash states, lives."""

from __future__ import annotations

from collections import Counter

_seen: Counter[str] = Counter()


def count(what: str, number: int = 1) -> None:
    """So many more of these; nothing when there were none."""
    if number:
        _seen[what] += number


def taken() -> dict[str, int]:
    """What was counted since the last call."""
    found = dict(_seen)
    _seen.clear()
    return found
