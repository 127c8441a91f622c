"""Screens for progress output: plain lines, a live view in a terminal, an output cell of a notebook."""

from __future__ import annotations

import atexit
import html
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from trainables.printable import one_line, printable
from tuner.progress.table import TrialTable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live


@dataclass(frozen=True, slots=True)
class Status:
    """One look at a run."""

    lines: list[str]
    grid: TrialTable


class Screen(Protocol):
    """A place to show a run."""

    interval: float
    """Seconds between two looks, at least."""
    lively: bool
    """True if a look replaces the one before it; then it shows what running trials do, and events need no lines."""

    def line(self, text: str) -> None:
        """Something that stays: an event, a warning."""

    def show(self, status: Status) -> None:
        """A look at the run while it goes on."""

    def final(self, status: Status) -> None:
        """The last look, which stays."""

    def close(self) -> None:
        """Leave the place as it was found. Safe to call again."""


class PlainScreen:
    """Lines, for files, pipes and logs."""

    interval = 30.0
    lively = False

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def line(self, text: str) -> None:
        stream = self._stream or sys.stdout  # looked up late: pytest and notebooks replace it
        try:
            stream.write(printable(text) + "\n")
            stream.flush()
        except (OSError, ValueError):
            pass  # a closed pipe is no reason to end a run

    def show(self, status: Status) -> None:
        self.line("  ".join(status.lines))

    def final(self, status: Status) -> None:
        if status.grid.rows:
            self.line(status.grid.plain())
        for line in status.lines:
            self.line(line)

    def close(self) -> None:
        pass


class TerminalScreen:
    """One live view at the bottom of a terminal, lines scroll by above it. It draws when told to, without a thread."""

    interval = 0.5
    lively = True

    def __init__(self, console: Console | None = None) -> None:
        self._console = console
        self._live: Live | None = None

    def line(self, text: str) -> None:
        self._get_console().print(printable(text), markup=False, highlight=False, emoji=False, soft_wrap=True)

    def show(self, status: Status) -> None:
        if self._live is None:
            from rich.live import Live

            self._live = Live(console=self._get_console(), auto_refresh=False, transient=True)
            atexit.register(self.close)  # whatever ends the driver, the terminal is left as it was
            self._live.start()
            self._get_console().show_cursor(True)  # so that even SIGKILL leaves it visible
        self._live.update(self._drawn(status), refresh=True)

    def final(self, status: Status) -> None:
        self.close()
        if status.grid.rows:
            self._get_console().print(status.grid.rich())
        for line in status.lines:
            self.line(line)

    def close(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()
            atexit.unregister(self.close)

    def rows(self) -> int:
        """Rows of trials that fit."""
        return max(3, self._get_console().size.height - 8)

    def _drawn(self, status: Status) -> Any:
        from rich.console import Group
        from rich.text import Text

        return Group(
            *(Text(one_line(line), no_wrap=True, overflow="ellipsis") for line in status.lines), status.grid.rich()
        )

    def _get_console(self) -> Console:
        if self._console is None:
            from rich.console import Console

            self._console = Console()
        return self._console


class NotebookScreen:
    """An output cell that is replaced by each look. Lines are printed below it."""

    interval = 1.0
    lively = True

    def __init__(self, display: Callable[..., Any] | None = None) -> None:
        self._display = display
        self._handle: Any = None

    def line(self, text: str) -> None:
        PlainScreen().line(text)

    def show(self, status: Status) -> None:
        made = _Html("".join(f"<div>{html.escape(one_line(line))}</div>" for line in status.lines) + status.grid.html())
        if self._handle is None:
            display = self._display or sys.modules["IPython"].display.display
            self._handle = display(made, display_id=True)
        else:
            self._handle.update(made)

    def final(self, status: Status) -> None:
        self.show(status)

    def close(self) -> None:
        pass


class _Html:
    """What a notebook shows as HTML; elsewhere it is text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def _repr_html_(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return "progress of a run"


def in_notebook() -> bool:
    """True in a Jupyter kernel. IPython is not imported for it: where it is the shell, it is there already."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def fitting_screen() -> Screen:
    """The one for where standard output goes."""
    if in_notebook():
        return NotebookScreen()
    try:
        terminal = sys.stdout is not None and sys.stdout.isatty()
    except ValueError:
        terminal = False  # closed
    return TerminalScreen() if terminal else PlainScreen()
