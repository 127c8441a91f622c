"""A screen that ends no run: where drawing fails, it is said once, and plain lines follow."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from tuner.progress.screen import Drawable, PlainScreen, Screen

log = logging.getLogger(__name__)


class SteadyScreen:
    """Another screen, until it raises; from then on lines on standard output.

    Args:
        screen: what is drawn on as long as that works.
    """

    def __init__(self, screen: Screen) -> None:
        self._take(screen)

    def rows(self) -> int:
        """Rows of trials that fit."""
        rows: int = getattr(self._screen, "rows", lambda: 20)()
        return rows

    def line(self, text: str) -> None:
        self._try(lambda screen: screen.line(text))

    def fold(self, heading: str, brief: str, whole: str) -> None:
        self._try(lambda screen: screen.fold(heading, brief, whole))

    def show(self, look: Drawable) -> None:
        self._try(lambda screen: screen.show(look))

    def final(self, look: Drawable) -> None:
        self._try(lambda screen: screen.final(look))

    def close(self) -> None:
        self._try(lambda screen: screen.close())

    def _take(self, screen: Screen) -> None:
        self._screen = screen
        self.interval, self.lively, self.folds = screen.interval, screen.lively, screen.folds

    def _try(self, draw: Callable[[Screen], None]) -> None:
        try:
            draw(self._screen)
        except Exception as error:
            failed = self._screen
            self._take(PlainScreen())
            with contextlib.suppress(Exception):
                failed.close()
            log.warning("the live view cannot be drawn, lines follow: %s: %s", type(error).__name__, error)
            draw(self._screen)
