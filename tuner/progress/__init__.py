"""How a run is shown: a live view in a terminal, lines elsewhere, a cell in a notebook."""

from __future__ import annotations

from tuner.progress.callback import Announcer, Progress
from tuner.progress.facts import ProgressFacts
from tuner.progress.reporters import CLIReporter, JupyterNotebookReporter, ProgressReporter, default_reporter
from tuner.progress.text import traceback_tail

__all__ = [
    "Announcer",
    "CLIReporter",
    "JupyterNotebookReporter",
    "Progress",
    "ProgressFacts",
    "ProgressReporter",
    "default_reporter",
    "traceback_tail",
]
