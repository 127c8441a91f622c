"""How far something long has come: a bar on standard error in a terminal, elsewhere a line now and then."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tuner.clock import Clock, SystemClock
from tuner.progress import formatting

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_EVERY_S = 30.0
"""Without a terminal."""


class TaskBar:
    """Items of which each has so many bytes. All calls are cheap, and may come from any thread.

    Args:
        what: is being done, as "copying".
        noun: of an item: "checkpoint".
        say: gets a line each half minute where there is no terminal; None: nothing is said there.
        clock: for tests.
    """

    def __init__(
        self, what: str, noun: str, *, say: Callable[[str], None] | None = None, clock: Clock | None = None
    ) -> None:
        self.what, self._noun, self._say = what, noun, say
        self._clock = clock or SystemClock()
        self._due = self._clock.monotonic() + LINE_EVERY_S
        self._lock = threading.RLock()
        self._items = self._bytes = self._moved = self._item_bytes = 0
        self._total: int | None = None
        self._total_bytes = 0
        self._bar: Progress | None = None

    def of(self, items: int, size: int = 0) -> None:
        """Know how many there are, and their bytes."""
        with self._lock:
            self._total, self._total_bytes = items, size
            self._show()

    def begin(self, size: int) -> None:
        """An item of so many bytes is begun."""
        with self._lock:
            self._item_bytes, self._moved = size, 0

    def moved(self, size: int) -> None:
        """So many more bytes of the item have gone; if that comes to more than it has, it was gone over twice."""
        with self._lock:
            self._moved += size
            self._show()

    def item(self, size: int | None = None) -> None:
        """One is done: `size` bytes, or those that it was begun with."""
        with self._lock:
            self._items += 1
            self._bytes += self._item_bytes if size is None else size
            self._item_bytes = self._moved = 0
            self._show()

    def at(self, items: int) -> None:
        """So many are done."""
        with self._lock:
            self._items = items
            self._show()

    def stage(self, what: str, items: int | None = None) -> None:
        """Something else is being done from here on; None: how many there are is not known."""
        with self._lock:
            self.what, self._total, self._items = what, items, 0
            self._show()

    def aside(self, say: Callable[[str], None], line: str) -> None:
        """Say something that stays, above the bar."""
        with self._lock:
            bar = self._bar
            if bar is not None:
                bar.stop()
            say(line)
            if bar is not None:
                bar.start()

    @property
    def text(self) -> str:
        """ "3 of 12 checkpoints, 1.2 of 3.4 GB" """
        of = "" if self._total is None else f" of {self._total}"
        parts = [f"{self._items}{of} {self._noun}{'s' * ((self._total or self._items) != 1)}"]
        if self._total_bytes:
            parts.append(f"{formatting.size(self._done_bytes)} of {formatting.size(self._total_bytes)}")
        return ", ".join(parts)

    @property
    def _done_bytes(self) -> int:
        return self._bytes + min(self._moved, self._item_bytes)

    def _show(self) -> None:
        if self._bar is not None:
            known = self._total_bytes or self._total
            done = self._done_bytes if self._total_bytes else self._items
            self._bar.update(self._bar.task_ids[0], total=known, completed=done, what=self.what, text=self.text)
        elif self._say is not None and self._clock.monotonic() >= self._due:
            self._due = self._clock.monotonic() + LINE_EVERY_S
            self._say(f"{self.what}: {self.text}")

    @contextmanager
    def shown(self) -> Iterator[TaskBar]:
        """Show it meanwhile; of a bar nothing is left behind."""
        if not is_terminal():
            yield self
            return
        self._bar = _bar()
        self._bar.add_task(self.what, total=None, what=self.what, text=self.text)
        try:
            with self._bar:
                yield self
        finally:
            self._bar = None


def is_terminal() -> bool:
    """Whether standard error is one."""
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:
        return False  # closed


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    no_wrap = Column(no_wrap=True, overflow="ellipsis")
    return Progress(
        TextColumn("{task.fields[what]}", markup=False, table_column=no_wrap),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[text]}", markup=False, table_column=no_wrap),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
    )
