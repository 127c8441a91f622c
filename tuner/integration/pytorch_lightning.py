"""Lightning's callbacks under Ray Tune's names; `trainables.lightning` says how a trainer continues."""

from __future__ import annotations

from trainables.lightning import LightningEventCallback, ReportCallback
from trainables.reporting import Metrics

__all__ = ["TuneCallback", "TuneReportCallback", "TuneReportCheckpointCallback"]

TuneCallback = LightningEventCallback
"""Base of callbacks of your own."""


class TuneReportCheckpointCallback(ReportCallback):
    """Reports the trainer's metrics with its checkpoint, at the hooks that `on` names (without `on_`).

    Args:
        metrics: Which of `trainer.callback_metrics` to report; a dict of name to report -> logged name renames; None
            for all. One that is not logged yet is left out, with one warning.
        filename: The checkpoint's name; the trainer continues with `fit(ckpt_path=...)`.
        save_checkpoints: False: report only.
        on: "validation_end", "train_epoch_end", ..., or several.

    Raises InvalidSettingError for a hook that Lightning has not.
    """

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = "checkpoint",
        save_checkpoints: bool = True,
        on: str | list[str] = "validation_end",
    ) -> None:
        super().__init__(metrics, filename if save_checkpoints else None, on)


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports the trainer's metrics, and saves nothing."""

    def __init__(self, metrics: Metrics = None, on: str | list[str] = "validation_end") -> None:
        super().__init__(metrics, save_checkpoints=False, on=on)
