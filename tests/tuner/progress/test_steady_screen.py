"""What cannot be drawn ends no run: it is said once, and lines follow."""

from __future__ import annotations

import io
import logging
import sys
from typing import Any

import pytest
from rich.console import Console

from tuner.clock import VirtualClock
from tuner.progress import Progress
from tuner.progress.screen import TerminalScreen
from tuner.progress.steady_screen import SteadyScreen


def test_a_run_goes_on_with_lines_where_its_view_cannot_be_drawn(
    lab: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "stdout", lines := io.StringIO())
    terminal = io.StringIO()
    console = Console(file=terminal, force_terminal=True, width=80)
    clock = VirtualClock()
    screen = SteadyScreen(TerminalScreen(console))
    progress = Progress(metric="loss", mode="min", screen=screen, clock=clock)
    run = lab(progress)
    run.report(run.trial(lr=1), loss=1)
    for turn in range(3):
        assert screen.lively is (turn < 2)
        if turn:
            terminal.close()
        clock.advance(1)
        run.callbacks.on_step_end(0, run.state.trials)
    assert not screen.lively and screen.interval == 30
    assert sys.stdout is lines, "nothing stands between the user's prints and the output"
    run.finish()

    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1 and "the live view cannot be drawn, lines follow: ValueError" in warnings[0].getMessage()
    assert "best last loss: 1" in lines.getvalue()
