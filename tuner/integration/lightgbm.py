"""LightGBM's callbacks under Ray Tune's names; `trainables.lightgbm` says how a model is continued."""

from __future__ import annotations

from trainables.lightgbm import RayTrainReportCallback
from tuner.integration.report_only import ReportOnly, SavesInBetween

__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback"]


class TuneReportCheckpointCallback(SavesInBetween, RayTrainReportCallback):
    """Reports each round of `lightgbm.train`, and checkpoints the model every five."""


class TuneReportCallback(ReportOnly, TuneReportCheckpointCallback):
    """Reports each round of `lightgbm.train`, and saves nothing."""
