"""Screens for progress output: plain lines, a live view in a terminal, an output cell of a notebook."""

from __future__ import annotations

import atexit
import html
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TextIO, cast

from trainables.printable import one_line, printable
from trainables.quick_dataclass import dataclass
from tuner.progress.encoding import EncodableStream, drawable, encoding_of, escaped
from tuner.progress.table import TrialTable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live


class Drawable(Protocol):
    """What is shown of a run at one moment."""

    def brief(self) -> str:
        """On one line, without trials."""

    def plain(self) -> str:
        """As lines of text."""

    def within(self, encoding: str) -> Drawable:
        """The same with escapes for what an encoding lacks, before it is fitted to a width."""

    def html(self) -> str:
        """For a notebook, everything escaped."""

    def lines(self, width: int) -> Sequence[RenderableType]:
        """What stands above the table in a terminal with so many columns."""

    def trials(self, width: int) -> Sequence[RenderableType]:
        """The table."""


KEPT_LINES = 50
"""Lines that are printed again when the size of a terminal changes."""


@dataclass(frozen=True, slots=True)
class Status:
    """Lines and a table, as reporters print them."""

    told: list[str]
    grid: TrialTable

    def brief(self) -> str:
        return "  ".join(self.told)

    def plain(self) -> str:
        return "\n".join([*([self.grid.plain()] if self.grid.rows else []), *self.told])

    def within(self, encoding: str) -> Status:
        cells = [[escaped(cell, encoding) for cell in row] for row in (self.grid.header, *self.grid.rows)]
        return Status(
            [escaped(line, encoding) for line in self.told], replace(self.grid, header=cells[0], rows=cells[1:])
        )

    def html(self) -> str:
        return "".join(f"<div>{html.escape(one_line(line))}</div>" for line in self.told) + self.grid.html()

    def lines(self, width: int) -> Sequence[RenderableType]:
        from rich.text import Text

        return [Text(one_line(line), no_wrap=True, overflow="ellipsis") for line in self.told]

    def trials(self, width: int) -> Sequence[RenderableType]:
        return [self.grid.rich()] if self.grid.rows else []


class Screen(Protocol):
    """A place to show a run."""

    interval: float
    """Seconds between two looks, at least."""
    lively: bool
    """True if a look replaces the one before it; then it shows what running trials do, and events need no lines."""

    folds: bool
    """True if what is long takes one line until it is opened."""

    def line(self, text: str) -> None:
        """Something that stays: an event, a warning."""

    def fold(self, heading: str, brief: str, whole: str) -> None:
        """Something long: the heading, and below it what is brief; all of it where it can be folded."""

    def show(self, look: Drawable) -> None:
        """A look at the run while it goes on."""

    def final(self, look: Drawable) -> None:
        """The last look, which stays."""

    def close(self) -> None:
        """Leave the place as it was found. Safe to call again."""


class PlainScreen:
    """Lines, for files, pipes and logs."""

    interval = 30.0
    lively = False
    folds = False

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def line(self, text: str) -> None:
        self._write(escaped(printable(text), encoding_of(self._get_stream())))

    def fold(self, heading: str, brief: str, whole: str) -> None:
        self.line(f"{heading}\n{brief}")

    def show(self, look: Drawable) -> None:
        self.line(look.brief())

    def final(self, look: Drawable) -> None:
        encoding = encoding_of(self._get_stream())
        self._write(drawable(printable(look.within(encoding).plain()), encoding))

    def close(self) -> None:
        pass

    def _write(self, text: str) -> None:
        stream = self._get_stream()
        if stream is None:
            return  # the program was started without
        try:
            stream.write(text + "\n")
            stream.flush()
        except (OSError, ValueError, RuntimeError):
            pass  # a closed pipe is no reason to end a run, nor is a print that a signal handler has interrupted

    def _get_stream(self) -> TextIO | None:
        return self._stream or sys.stdout  # looked up late: pytest and notebooks replace it


class TerminalScreen:
    """One live view at the bottom of a terminal, lines scroll by above it. It draws when told to, without a thread."""

    interval = 0.5
    lively = True
    folds = False

    def __init__(self, console: Console | None = None) -> None:
        self._console = console
        self._live: Live | None = None
        self._size = (0, 0)
        self._printed: deque[str] = deque(maxlen=KEPT_LINES)
        """The last lines above the view: a terminal that changes its width may have broken them anew."""

    def line(self, text: str) -> None:
        self._printed.append(text)
        self._print(text)

    def fold(self, heading: str, brief: str, whole: str) -> None:
        self.line(f"{heading}\n{brief}")

    def show(self, look: Drawable) -> None:
        console = self._get_console()
        if self._live is not None and self._size != console.size:
            self._begin_anew()
        if self._live is None:
            from rich.live import Live

            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._size = console.size
            atexit.register(self.close)  # whatever ends the driver, the terminal is left as it was
            self._live.start()
            console.show_cursor(True)  # so that even SIGKILL leaves it visible
        self._live.update(self._drawn(look), refresh=True)

    def final(self, look: Drawable) -> None:
        self.close()
        console = self._get_console()
        look = look.within(console.encoding)
        for each in [*look.trials(console.width), *look.lines(console.width)]:
            console.print(each)

    def close(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()
            atexit.unregister(self.close)

    def rows(self) -> int:
        """Rows of trials that fit."""
        return max(3, self._get_console().size.height - 11)

    def _drawn(self, look: Drawable) -> Any:
        from rich.console import Group

        console = self._get_console()
        look = look.within(console.encoding)
        lines = look.lines(console.width)
        return Group(*lines, *look.trials(console.width)[: max(1, console.height - len(lines) - 1)])

    def _begin_anew(self) -> None:
        """The terminal has another size: where the old view stands nobody knows, so that all in sight is drawn anew."""
        from rich.control import Control

        self.close()
        console = self._get_console()
        console.control(Control.clear(), Control.home())
        for text in list(self._printed)[-max(1, console.height // 2) :]:
            self._print(text)

    def _print(self, text: str) -> None:
        console = self._get_console()
        console.print(
            escaped(printable(text), console.encoding), markup=False, highlight=False, emoji=False, soft_wrap=True
        )

    def _get_console(self) -> Console:
        if self._console is None:
            from rich.console import Console

            plain = getattr(sys.stdout, "rich_proxied_file", sys.stdout)
            has_all = encoding_of(plain).lower().startswith("utf")
            self._console = Console() if has_all else Console(file=cast(TextIO, EncodableStream(plain)))
        return self._console


class NotebookScreen:
    """An output cell that is replaced by each look. Lines are printed below it."""

    interval = 1.0
    lively = True
    folds = True

    def __init__(self, display: Callable[..., Any] | None = None) -> None:
        self._display = display
        self._handle: Any = None

    def line(self, text: str) -> None:
        PlainScreen().line(text)

    def fold(self, heading: str, brief: str, whole: str) -> None:
        self._get_display()(_Folded(heading, brief, whole))

    def show(self, look: Drawable) -> None:
        made = _Shown(look)
        if self._handle is None:
            self._handle = self._get_display()(made, display_id=True)
        else:
            self._handle.update(made)

    def final(self, look: Drawable) -> None:
        self.show(look)

    def close(self) -> None:
        pass

    def _get_display(self) -> Callable[..., Any]:
        return self._display or sys.modules["IPython"].display.display


@dataclass(frozen=True, slots=True)
class _Folded:
    """A heading that opens."""

    heading: str
    brief: str
    whole: str

    def _repr_html_(self) -> str:
        heading, whole = html.escape(one_line(self.heading)), html.escape(printable(self.whole))
        return f"<details><summary>{heading}</summary><pre>{whole}</pre></details>"

    def __repr__(self) -> str:
        return printable(f"{self.heading}\n{self.brief}")


class _Shown:
    """What a notebook shows as HTML; where it is exported as text, that."""

    def __init__(self, look: Drawable) -> None:
        self.look = look

    def _repr_html_(self) -> str:
        return self.look.html()

    def __repr__(self) -> str:
        return self.look.plain()


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
