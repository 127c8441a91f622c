"""Attempts that run in processes of callers, who ask for a trial and tell its results (`tune.open_session`)."""

from __future__ import annotations

from tuner.executors.callers.caller_executor import CallerExecutor

__all__ = ["CallerExecutor"]
