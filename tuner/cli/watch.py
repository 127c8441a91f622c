"""`tuner watch EXPERIMENT`: the live view of a run that goes on elsewhere, read from its journal or its replica."""

from __future__ import annotations

import argparse
import contextlib
import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tuner.cli import place
from tuner.clock import SystemClock
from tuner.error import ExperimentNotFoundError
from tuner.experiment.hostile import UNREADABLE, said
from tuner.experiment.paths import ExperimentPaths, is_elsewhere

if TYPE_CHECKING:
    from tuner.progress.observed import ObservedRun
    from tuner.progress.screen import Screen
    from tuner.tools.watching import WatchedRun

DESCRIPTION = """\
Shows a run while it goes on, from another terminal or another machine, until it has ended; Ctrl-C ends the watching,
never the run. It only reads: the journal in the experiment's directory, or with a URI what its replica has, which lacks
what was not copied yet. Where the output is no terminal, each start and end of a trial is a line. Exit status 0: the
run has finished, and no trial failed; 1: it has ended otherwise; 130: Ctrl-C."""

HOW_TO_LEAVE = "Ctrl-C ends the watching; the run goes on"
PATIENCE = 10
"""Between two looks there is so many times the time that a look takes: a large journal is read more seldom."""
SUMMARY_S = 30.0
"""Without a terminal: so often a line says how all of it stands, where something has changed."""


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser(
        "watch",
        help="show a run while it goes on, from anywhere",
        description=DESCRIPTION,
    )
    verb.add_argument("experiment", metavar="EXPERIMENT", help="a path, a URI, or a name under ~/tuner_results")
    verb.add_argument("--once", action="store_true", help="show how it stands now, and end")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from tuner.progress.screen import fitting_screen
    from tuner.progress.steady_screen import SteadyScreen

    screen = SteadyScreen(fitting_screen())
    with _source(arguments.experiment) as source:
        watching = WatchLoop(source, screen)
        try:
            while not watching.look(last=arguments.once):
                watching.clock.sleep(watching.pause)
        except KeyboardInterrupt:
            watching.leave()
            raise
        except UNREADABLE:
            screen.close()
            raise
    return watching.status


@contextlib.contextmanager
def _source(given: str) -> Iterator[WatchedRun]:
    from tuner.tools.watching import WatchedDirectory, source_at

    if is_elsewhere(given):
        with source_at(given) as remote:
            yield remote
    else:
        yield WatchedDirectory(ExperimentPaths(place.experiment(given)))


@contextlib.contextmanager
def _whole() -> Iterator[None]:
    """Ctrl-C waits until this is over: half a view would stay on the screen."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


class WatchLoop:
    """One look after another, drawn where the output goes.

    Args:
        source: where the run is read.
        screen: what it is shown on.
    """

    def __init__(self, source: WatchedRun, screen: Screen) -> None:
        from tuner.progress.observed import ObservedEvents

        self._source, self._screen, self.clock = source, screen, SystemClock()
        self._events = ObservedEvents()
        self._seen: ObservedRun | None = None
        self._trouble = ""
        self._summary, self._summary_due = "", 0.0
        self.pause = source.interval
        self.status = 0

    def look(self, *, last: bool = False) -> bool:
        """Look once; True: there is nothing more to see."""
        begun = self.clock.monotonic()
        try:
            self._seen, self._trouble = self._source.look(), ""
        except ExperimentNotFoundError:  # it was removed
            raise
        except UNREADABLE as error:
            if self._seen is None:
                raise
            self._tell(f"not read just now: {said(error)}")
        took = self.clock.monotonic() - begun
        self.pause = max(self._source.interval, PATIENCE * took)
        seen = self._seen
        self.status = 0 if seen.went_well or (last and not seen.has_ended) else 1
        if last or seen.has_ended:
            self.leave()
            return True
        with _whole():
            self._draw(seen)
        return False

    def leave(self) -> None:
        """Show the last look, which stays."""
        if self._seen is None:
            self._screen.close()
            return
        for line in () if self._screen.lively else self._events.since(self._seen):
            self._screen.line(line)
        self._screen.final(self._view(self._seen))
        self._screen.close()

    def _draw(self, seen: ObservedRun) -> None:
        from tuner.progress.run_view import HeadLine

        if self._screen.lively:
            view = self._view(seen)
            self._screen.show(replace(view, head=[*view.head, HeadLine(HOW_TO_LEAVE, "dim")]))
            return
        for line in self._events.since(seen):
            self._screen.line(line)
        now = self.clock.monotonic()
        if now >= self._summary_due:
            head = self._view(seen).head
            summary = "  ".join(line.text for line in (head[0], *head[2:-1]))
            if summary != self._summary:
                self._screen.line("  ".join(line.text for line in head[:-1]))
            self._summary, self._summary_due = summary, now + SUMMARY_S

    def _view(self, seen: ObservedRun) -> Any:
        from tuner.progress.observed import view

        rows = getattr(self._screen, "rows", lambda: 20)()
        return view(seen, now=self.clock.time(), rows=rows)

    def _tell(self, line: str) -> None:
        """Say once what is wrong, until it is well again."""
        if line != self._trouble:
            self._trouble = line
            self._screen.line(f"tuner watch: {line}")
