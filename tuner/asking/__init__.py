"""Ask and tell: trials for training loops that run in processes of their own (`tune.open_session`)."""

from __future__ import annotations

from tuner.asking.ask_session import AskSession
from tuner.asking.asked_trial import AskedTrial
from tuner.asking.session_opening import open_session

__all__ = ["AskSession", "AskedTrial", "open_session"]
