"""Texts for people: tracebacks that are cut."""

from __future__ import annotations

import pytest

from tuner.progress import (
    traceback_tail,
)


@pytest.mark.parametrize("length", [1, 3, 9, 10, 11, 50])
def test_a_cut_traceback_keeps_both_ends(length: int) -> None:
    lines = ["Traceback (most recent call last):", '  File "user.py", line 1, in f', "    g()"]
    lines += [f"    line {n}" if n % 2 else f'  File "lib.py", line {n}' for n in range(length)] + ["KeyError: 1"]
    text = "\n".join(["Traceback (most recent call last):", "KeyError: cause", "", *lines])

    tail = traceback_tail(text, 10).splitlines()

    assert len(tail) <= 10
    assert tail[1:3] == lines[1:3]
    assert tail[-1] == "KeyError: 1"


def test_f52_a_line_of_a_traceback_is_cut() -> None:
    """A message may hold a whole array; the kind of the error stays."""
    tail = traceback_tail("Traceback (most recent call last):\n  ...\nValueError: " + "x" * 65536)
    assert len(tail) < 1000 and tail.splitlines()[-1].startswith("ValueError: xxx") and tail.endswith("...")
