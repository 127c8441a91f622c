"""Where a run is shown: lines, a live view that leaves the terminal as it was, a cell of a notebook."""

from __future__ import annotations

import subprocess
import sys
import types
from typing import Any

import pytest

from tests.tuner.progress.harness import plain, terminal
from tuner.clock import VirtualClock
from tuner.progress import (
    Progress,
    screen,
)
from tuner.progress.screen import NotebookScreen, PlainScreen, TerminalScreen


def test_the_terminal_is_left_as_it_was(lab: Any) -> None:
    clock = VirtualClock()
    progress, out = terminal(clock)
    run = lab(progress)
    run.report(run.trial(lr=1), loss=1)
    clock.advance(1)
    run.callbacks.on_step_end(0, run.state.trials)
    assert out.getvalue().rfind("\x1b[?25h") > out.getvalue().rfind("\x1b[?25l"), "visible also if killed now"
    run.finish()

    assert progress._screen._live is None  # type: ignore[attr-defined]
    assert sys.stdout is not None
    assert "FileProxy" not in type(sys.stdout).__name__
    assert "train_ab_00000" in out.getvalue().rsplit("\x1b", 1)[-1]


def test_the_terminal_is_left_as_it_was_by_an_exception_that_nobody_handles() -> None:
    code = """
import io, sys
from rich.console import Console
from tuner.progress.screen import Status, TerminalScreen
from tuner.progress.table import TrialTable
screen = TerminalScreen(Console(file=sys.stderr, force_terminal=True, width=80))
screen.show(Status(["1 trials"], TrialTable(["trial"], [["one"]])))
raise KeyboardInterrupt
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.stderr.rfind("\x1b[?25h") > done.stderr.rfind("\x1b[?25l")
    assert "\x1b[1A\x1b[2K" in done.stderr[done.stderr.index("KeyboardInterrupt") :] or "\x1b[2K" in done.stderr


def test_names_in_brackets_are_no_markup(lab: Any) -> None:
    clock = VirtualClock()
    progress, out = terminal(clock)
    run = lab(progress)
    run.report(run.trial(layer="[bold]x[/bold]"), loss=1)
    clock.advance(1)
    run.callbacks.on_step_end(0, run.state.trials)

    assert "[bold]x[/bold]" in out.getvalue()


def test_in_a_notebook_one_cell_is_replaced(lab: Any) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, made: Any) -> None:
            shown[-1] = made._repr_html_()

    def display(made: Any, display_id: bool) -> Handle:
        shown.append(made._repr_html_())
        return Handle()

    clock = VirtualClock()
    progress = Progress(metric="loss", mode="min", screen=NotebookScreen(display), clock=clock)
    run = lab(progress)
    for name in ("<b>", "&"):
        run.report(run.trial(name=name), loss=1)
        clock.advance(2)
        run.callbacks.on_step_end(0, run.state.trials)
    run.finish()

    assert len(shown) == 1
    assert "<td>&lt;b&gt;</td>" in shown[0]
    assert "2 trials" in shown[0]


def test_the_screen_fits_where_output_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(screen.fitting_screen(), PlainScreen)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert isinstance(screen.fitting_screen(), TerminalScreen)
    shell = type("ZMQInteractiveShell", (), {"kernel": object()})()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    assert isinstance(screen.fitting_screen(), NotebookScreen)


def test_a_closed_pipe_does_not_end_a_run(lab: Any) -> None:
    progress, out = plain()
    out.close()
    run = lab(progress)
    run.end(run.trial())
    run.finish()
