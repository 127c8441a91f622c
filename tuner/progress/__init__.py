"""How a run is shown: a live view in a terminal, lines elsewhere, a cell in a notebook."""

from __future__ import annotations

from tuner.progress.announcer import Announcer
from tuner.progress.counts import ProgressFacts
from tuner.progress.failure_text import failure_text
from tuner.progress.live import Progress
from tuner.progress.reporters import CLIReporter, JupyterNotebookReporter, ProgressReporter, default_reporter

__all__ = [
    "Announcer",
    "CLIReporter",
    "JupyterNotebookReporter",
    "Progress",
    "ProgressFacts",
    "ProgressReporter",
    "default_reporter",
    "failure_text",
]
