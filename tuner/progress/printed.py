"""Where what trials print is found: said once, when one has printed, for nobody sees it in the terminal of the run."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from tuner.experiment.paths import TrialPaths, default_storage
from tuner.experiment.trial import Trial


def named(root: Path) -> str:
    """An experiment as the command line takes it: a name under the default storage, else its path."""
    return shlex.quote(root.name if root.parent == default_storage() else str(root))


class PrintedHint:
    """Says it the first time that a trial is seen to have printed.

    Args:
        say: gets the line; None: prints are shown anyhow.
    """

    def __init__(self, say: Callable[[str], None] | None) -> None:
        self._say = say

    def look(self, trial: Trial) -> None:
        """Look at a trial's files."""
        if self._say is not None and _has_printed(TrialPaths(trial.directory)):
            self._say(f"what trials print goes to files: tuner logs {named(trial.directory.parent)} [TRIAL] [-f]")
            self._say = None


def _has_printed(paths: TrialPaths) -> bool:
    for file in (paths.stdout, paths.stderr):
        try:
            if file.stat().st_size:
                return True
        except OSError:
            pass  # another executor, or another file (`log_to_file`), of which its user knows
    return False
