"""Ray's name for the reporters of `tuner.progress`."""

from __future__ import annotations

from tuner.progress.reporters import CLIReporter, JupyterNotebookReporter, ProgressReporter

__all__ = ["CLIReporter", "JupyterNotebookReporter", "ProgressReporter"]
