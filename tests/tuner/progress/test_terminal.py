"""A real run in a terminal, as a person sees it: at four widths, resized, killed and resumed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.tuner.progress.emulator import Emulator

SCRIPT = Path(__file__).parents[2] / "scripts" / "live_run.py"
ROOT = Path(__file__).parents[3]


def started(tmp_path: Path, columns: int, **environment: str) -> Emulator:
    command = [sys.executable, str(SCRIPT), str(tmp_path / "results"), str(tmp_path / "go")]
    return Emulator(command, columns, PYTHONPATH=str(ROOT), **environment)


def is_drawn(terminal: Emulator) -> bool:
    """Both running trials wait, one has failed."""
    rows = [line.split() for line in terminal.lines]
    return sum("running" in row and row[2:3] == ["4"] for row in rows) == 2


def check(terminal: Emulator, width: int) -> None:
    """What has to be seen, once each, and on no line too long."""
    seen = terminal.text
    assert max(map(len, terminal.lines)) <= width
    assert seen.count(" of 9 trials done, 2 running, ") == 1, "no stale view"
    assert seen.count("best validation/loss ") == 1
    assert "█" in seen and "time left is known when" in seen or " left" in seen
    assert " failed, the last: trial 0: ValueError: no convergence at depth 1" in seen
    assert "cpu 2/" in seen and "memory " in seen
    assert "a kill now would lose 2 results of 2 trials" in seen or width < 100
    (header,) = [line for line in terminal.lines if line.startswith("#")]
    names = header.split()
    assert names[:5] == ["#", "validation/loss", "iter", "time", "state"]
    shown = [name for name in names[5:] if not name.startswith(("+", "accuracy"))]
    hidden = sum(int(name[1:]) for name in names[5:] if name.startswith("+"))
    assert len(shown) + hidden == 5 and (width < 200 or names[-1] == "accuracy")
    failed = next(line for line in terminal.lines if line.split()[0] == "0")
    assert "failed: ValueE" in failed and seen.index(failed) > seen.rindex(" running")


def test_what_is_seen_of_a_run_that_is_killed_resumed_and_resized(tmp_path: Path) -> None:
    with started(tmp_path, 80) as terminal:
        terminal.until(is_drawn)
        check(terminal, 80)
        assert terminal.colours("failed: ValueError") >= {"red"}
        os.kill(terminal.process.pid, signal.SIGKILL)
        terminal.ended()
    with started(tmp_path, 100) as terminal:
        terminal.until(is_drawn)
        check(terminal, 100)
        for width in (120, 200, 80):
            terminal.resize(width)
            before = len(terminal.raw)
            terminal.until(lambda seen, before=before: len(seen.raw) > before and is_drawn(seen))  # type: ignore[misc]
            check(terminal, width)
        (tmp_path / "go").touch()
        assert terminal.ended() == 0
        assert terminal.text.count("9 of 9 trials done, 3 failed") == 1
        assert "ASHA's limit: 9 iterati" in terminal.text  # of 80 columns, wide values of parameters take some
        assert "running" not in terminal.text


def test_no_colour_where_none_is_wanted_and_no_glyphs_that_the_encoding_lacks(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    with started(tmp_path, 100, NO_COLOR="1", PYTHONIOENCODING="ascii") as terminal:
        assert terminal.ended() == 0
        assert terminal.raw.isascii() and "########" in terminal.text
        assert "9 of 9 trials done" in terminal.text
        assert terminal.colours("ValueError") == {"default"}


@pytest.mark.parametrize("columns", [20, 40])
def test_a_narrow_terminal_shows_what_fits(columns: int, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    with started(tmp_path, columns) as terminal:
        assert terminal.ended() == 0
