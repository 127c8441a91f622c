"""`Announcer`: what the driver says of a run to the person who started it, where nothing else is printed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from tuner.callback import Callback, Trials
from tuner.progress.counts import ProgressFacts
from tuner.progress.screen import fitting_screen
from tuner.progress.steady_screen import SteadyScreen
from tuner.progress.warn_once import WarnOnce

log = logging.getLogger(__name__)


class Announcer(Callback):
    """What `verbose=0` leaves of progress: nothing is printed, the lines of a run go to the log."""

    changes_results = False

    def __init__(self) -> None:
        self.failures_are_raised = False
        """Set before the end: an error with the first failed trial's traceback follows."""
        self.facts: Callable[[], ProgressFacts] | None = None
        """Set by the loop: gives the numbers when a look is drawn."""
        self._warnings = WarnOnce(None)

    @property
    def folds(self) -> bool:
        """Whether the traceback of the first failed trial is shown at the end, folded, also where it is raised."""
        return False

    def announce(self, line: str) -> None:
        """Say something that a person must be able to find later."""
        self._warnings.install()
        log.info("%s", line)

    def show(self, line: str) -> None:
        """Print a line that was asked for, whatever `verbose` is; it stands in no log."""
        SteadyScreen(fitting_screen()).line(line)

    def setup(self, *_: Any, **info: Any) -> None:
        self._warnings.install()

    def on_experiment_end(self, trials: Trials, **info: Any) -> None:
        self._warnings.remove()
