"""Where a run is shown: lines, a live view that leaves the terminal as it was, a cell of a notebook."""

from __future__ import annotations

import io
import subprocess
import sys
import types
from typing import Any

import pytest
from rich.console import Console

from tests.tuner.progress.harness import plain, terminal
from tuner.clock import VirtualClock
from tuner.progress import Progress
from tuner.progress.screen import (
    NotebookScreen,
    PlainScreen,
    Status,
    TerminalScreen,
    fitting_screen,
    in_notebook,
)
from tuner.progress.table import TrialTable


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
    assert "best loss 1: trial 0, iteration 1: lr=1" in out.getvalue().rsplit("\x1b[?25h", 1)[-1]


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
    assert "0 trials done, 2 running" in shown[0]


def test_the_screen_fits_where_output_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(fitting_screen(), PlainScreen)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert isinstance(fitting_screen(), TerminalScreen)
    shell = type("ZMQInteractiveShell", (), {"kernel": object()})()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    assert isinstance(fitting_screen(), NotebookScreen)


def test_a_closed_pipe_does_not_end_a_run(lab: Any) -> None:
    progress, out = plain()
    out.close()
    run = lab(progress)
    run.end(run.trial())
    run.finish()


# --- each by itself

STATUS = Status(["3 trials: 2 running", "best last loss: 1"], TrialTable(["trial"], [["[b]one[/b]"]], hidden=2))
EMPTY = Status(["no trials"], TrialTable(["trial"], []))


def test_lines_are_one_line_per_look_and_a_table_at_the_end() -> None:
    out = io.StringIO()
    screen = PlainScreen(out)
    screen.line("a\x1b[2Jb\rc")
    screen.show(STATUS)
    screen.final(STATUS)
    screen.close()
    assert "\x1b" not in out.getvalue() and "\r" not in out.getvalue()
    assert out.getvalue().splitlines()[1:] == [
        "3 trials: 2 running  best last loss: 1",
        "trial",
        "[b]one[/b]",
        "... and 2 more",
        "3 trials: 2 running",
        "best last loss: 1",
    ]


def test_a_table_without_rows_is_not_shown_at_the_end() -> None:
    out = io.StringIO()
    PlainScreen(out).final(EMPTY)
    assert out.getvalue() == "no trials\n"
    shown = io.StringIO()
    TerminalScreen(Console(file=shown, width=80)).final(EMPTY)
    assert shown.getvalue() == "no trials\n"


def test_standard_output_is_looked_up_for_each_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = PlainScreen()
    first, second = io.StringIO(), io.StringIO()
    for out in (first, second):
        monkeypatch.setattr(sys, "stdout", out)
        screen.line("here")
    assert (first.getvalue(), second.getvalue()) == ("here\n", "here\n")


@pytest.mark.parametrize("broken", [BrokenPipeError(), OSError(5, "Input/output error"), ValueError("closed")])
def test_an_output_that_is_gone_is_passed_over(broken: Exception) -> None:
    class Gone(io.StringIO):
        def flush(self) -> None:
            raise broken

    PlainScreen(Gone()).line("a")


def test_lines_scroll_by_above_a_live_view_which_closes_once() -> None:
    out = io.StringIO()
    screen = TerminalScreen(Console(file=out, force_terminal=True, width=80, height=20, legacy_windows=False))
    assert screen.rows() == 9
    screen.show(STATUS)
    screen.line("[red]an event[/red] :smile:")
    screen.show(STATUS)
    screen.close()
    before = out.getvalue()
    screen.close()
    assert out.getvalue() == before, "closed once"
    assert "[red]an event[/red] :smile:" in before and "[b]one[/b]" in before
    screen.final(STATUS)
    assert "best last loss: 1" in out.getvalue()[len(before) :]


def test_in_a_small_terminal_three_rows_are_shown_still() -> None:
    assert TerminalScreen(Console(file=io.StringIO(), width=80, height=5)).rows() == 3


def test_a_cell_is_shown_once_and_updated_then(capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, made: Any) -> None:
            shown.append(made._repr_html_())

    def display(made: Any, display_id: bool) -> Handle:
        shown.append("new " + made._repr_html_())
        assert repr(made).endswith("... and 2 more\n<b>") and display_id  # an exported notebook shows that
        return Handle()

    screen = NotebookScreen(display)
    screen.show(Status(["<b>"], STATUS.grid))
    screen.final(STATUS)
    screen.close()
    screen.line("an event")
    assert len(shown) == 2 and shown[0].startswith("new <div>&lt;b&gt;</div><table>")
    assert not shown[1].startswith("new")
    assert capsys.readouterr().out == "an event\n"


def test_who_is_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not in_notebook()
    terminal = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace())
    for module in (terminal, types.SimpleNamespace(get_ipython=lambda: None), types.SimpleNamespace()):
        monkeypatch.setitem(sys.modules, "IPython", module)  # type: ignore[arg-type]
        assert not in_notebook(), "IPython in a terminal, or only imported"


def test_an_output_that_is_closed_or_missing_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for out in (closed, None):
        monkeypatch.setattr(sys, "stdout", out)
        assert isinstance(fitting_screen(), PlainScreen)
