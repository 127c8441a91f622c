"""LightGBM's callbacks under Ray Tune's names; `trainables.lightgbm` says how a model is continued."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainables.lightgbm import RayTrainReportCallback
from trainables.reporting import Metrics

__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback"]


class TuneReportCheckpointCallback(RayTrainReportCallback):
    """Reports each round of `lightgbm.train`, and checkpoints the model."""


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports each round of `lightgbm.train`, and saves nothing."""

    def __init__(
        self,
        metrics: Metrics = None,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(metrics, checkpoint_at_end=False, results_postprocessing_fn=results_postprocessing_fn)
